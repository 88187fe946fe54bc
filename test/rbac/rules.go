// Package rbac holds the manifests of deploy/ against what they must not allow. It is
// for tests only.
package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// The rights by which one who has them can get all others, or read what belongs to
// somebody else.
var (
	deniedVerbs = []string{"*", "escalate", "bind", "impersonate", "deletecollection"}
	// deniedAnywhere may not be had with any verb.
	deniedAnywhere = []string{
		"*", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers", "services/proxy", "nodes/proxy",
		"serviceaccounts/token", "certificatesigningrequests", "certificatesigningrequests/approval", "signers",
	}
	// deniedWrites may not be written.
	deniedWrites = []string{
		"roles", "rolebindings", "clusterroles", "clusterrolebindings", "serviceaccounts", "nodes", "nodes/status", "namespaces",
		"customresourcedefinitions", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"apiservices", "flowschemas", "prioritylevelconfigurations",
	}
	// deniedClusterWide may not be had outside of a namespace.
	deniedClusterWide = []string{
		"secrets", "configmaps", "pods", "deployments", "daemonsets", "statefulsets", "replicasets", "jobs", "cronjobs", "podtemplates",
		"replicationcontrollers", "leases",
	}
	reads = []string{"get", "list", "watch"}
)

// Check says what is wrong with a rule. clusterWide is true for the rules of a
// ClusterRole.
func Check(r rbacv1.PolicyRule, clusterWide bool) []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	for _, v := range r.Verbs {
		if slices.Contains(deniedVerbs, v) {
			say("verb %s", v)
		}
	}
	if slices.Contains(r.APIGroups, "*") {
		say("all API groups")
	}
	for _, u := range r.NonResourceURLs {
		if strings.Contains(u, "*") {
			say("all of %s", u)
		}
	}
	for _, res := range r.Resources {
		base, _, _ := strings.Cut(res, "/")
		switch {
		case slices.Contains(deniedAnywhere, res), strings.HasPrefix(res, "*/"), strings.HasSuffix(res, "/*"):
			say("%s", res)
		case slices.Contains(deniedWrites, res) && !onlyReads(r.Verbs):
			say("writing %s", res)
		case clusterWide && slices.Contains(deniedClusterWide, base):
			say("%s outside of a namespace", res)
		}
	}
	return bad
}

func onlyReads(verbs []string) bool {
	for _, v := range verbs {
		if !slices.Contains(reads, v) {
			return false
		}
	}
	return true
}
