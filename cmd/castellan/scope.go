package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/settings"
)

// Environment variables that say which namespaces the operator works in, as its
// users know them.
const (
	envCurrentOnly = "ROOK_CURRENT_NAMESPACE_ONLY"
	envWatch       = "WATCH_NAMESPACE"
)

// scope is where the operator works. An empty list is every namespace.
type scope struct{ namespaces []string }

func (s scope) String() string {
	if len(s.namespaces) == 0 {
		return "all namespaces"
	}
	return strings.Join(s.namespaces, ", ")
}

// scopeOf is the wanted scope. own is the operator's namespace, data the settings
// ConfigMap, env the environment: what the ConfigMap says of
// ROOK_CURRENT_NAMESPACE_ONLY goes before the environment. The operator's own
// namespace is always in it.
func scopeOf(own string, data map[string]string, env func(string) string) scope {
	set, _ := settings.Parse(data) // what is wrong with it is told where it is followed
	only := set.CurrentNamespaceOnly
	if only == nil {
		if b, err := strconv.ParseBool(env(envCurrentOnly)); err == nil {
			only = &b
		}
	}
	if only != nil && *only {
		return scope{[]string{own}}
	}
	list := []string{own}
	for _, ns := range strings.Split(env(envWatch), ",") {
		if ns = strings.TrimSpace(ns); ns != "" {
			list = append(list, ns)
		}
	}
	if len(list) == 1 {
		return scope{}
	}
	slices.Sort(list)
	return scope{slices.Compact(list)}
}

// permitted narrows the scope of all namespaces to the operator's own where it may
// not read Secrets everywhere, which the roles it is installed with do not allow.
// A cache that may not list would wait for ever.
func permitted(ctx context.Context, c client.Client, own string, want scope) (got scope, narrowed bool, err error) {
	if len(want.namespaces) > 0 {
		return want, false, nil
	}
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "secrets"},
		}}
		if err := c.Create(ctx, review); err != nil {
			return scope{}, false, fmt.Errorf("asking what the operator is allowed to do: %w", err)
		}
		if !review.Status.Allowed {
			return scope{[]string{own}}, true, nil
		}
	}
	return want, false, nil
}
