package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// status is the part of a CephCluster that is followed.
type status struct {
	Status struct {
		Phase   string `json:"phase"`
		Message string `json:"message"`
		Mon     struct {
			InQuorum int `json:"inQuorum"`
		} `json:"mon"`
		OSD struct {
			Up, Total int
		} `json:"osd"`
		Ceph struct {
			Health  string                              `json:"health"`
			Details map[string]struct{ Message string } `json:"details"`
		} `json:"ceph"`
		BlockedBy []struct{ Subject, Reason, Message string } `json:"blockedBy"`
	} `json:"status"`
}

// seen is one thing that a watch has told.
type seen struct {
	at      time.Time
	cluster *status
	pod     *corev1.Pod
	err     error
}

// follow watches the CephCluster and the pods of its namespace until the cluster is
// ready and healthy. It watches, since asking again and again would take a good part
// of a small machine's time from what is waited for.
func (l *Lab) follow(ctx context.Context, t *timeline) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan seen)
	go watch(ctx, l, news, func(s status) seen { return seen{cluster: &s} }, "/apis/ceph.rook.io/v1/namespaces/"+Namespace+"/cephclusters")
	go watch(ctx, l, news, func(p corev1.Pod) seen { return seen{pod: &p} }, "/api/v1/namespaces/"+Namespace+"/pods")
	told := ""
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster: %w; last seen: %s", ctx.Err(), told)
		case s := <-news:
			switch {
			case s.err != nil:
				return fmt.Errorf("following the cluster: %w; last seen: %s", s.err, told)
			case s.pod != nil:
				t.pod(s.pod, s.at)
				continue
			}
			l.stages(t, s)
			if s.cluster.Status.Phase == "Ready" && s.cluster.Status.Ceph.Health == "HEALTH_OK" {
				return nil
			}
			if msg := waiting(*s.cluster); msg != told {
				told = msg
				l.say("waiting: %s", msg)
			}
		}
	}
}

// stages notes what the CephCluster's status says for the first time.
func (l *Lab) stages(t *timeline, s seen) {
	reach := func(name string) {
		if t.reach(name, s.at) {
			l.say("%s (%.1f s after the CephCluster was applied)", name, s.at.Sub(t.begun).Seconds())
		}
	}
	st := s.cluster.Status
	if st.Mon.InQuorum >= 3 {
		reach("3 mons in quorum")
	}
	if l.OSDs > 0 && st.OSD.Up >= l.OSDs {
		reach(fmt.Sprintf("%d OSDs up", l.OSDs))
	}
	if st.Phase == "Ready" {
		reach("phase Ready")
		if st.Ceph.Health == "HEALTH_OK" {
			reach(stageHealthy)
		}
	}
}

// event is what a watch of the API server tells.
type event[T any] struct {
	Type   string `json:"type"`
	Object T      `json:"object"`
}

// watch sends each object that a watch of path tells of, until ctx ends. kubectl hands
// the API server's own words through: to read them and to write them anew would take it
// as long as a daemon takes to start.
func watch[T any](ctx context.Context, l *Lab, news chan<- seen, as func(T) seen, path string) {
	send := func(s seen) {
		s.at = time.Now()
		select {
		case news <- s:
		case <-ctx.Done():
		}
	}
	args := []string{"get", "--raw", path + "?watch=true"}
	cmd := exec.CommandContext(ctx, l.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		send(seen{err: fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)})
		return
	}
	dec := json.NewDecoder(out)
	for {
		var e event[T]
		if err = dec.Decode(&e); err != nil {
			break
		}
		if e.Type == "ERROR" {
			err = errors.New("the API server ended the watch")
			break
		}
		if e.Type != "DELETED" {
			send(as(e.Object))
		}
	}
	err = errors.Join(err, cmd.Wait())
	send(seen{err: fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))})
}

func waiting(s status) string {
	var parts []string
	for _, b := range s.Status.BlockedBy {
		parts = append(parts, b.Subject+" ("+b.Reason+": "+b.Message+")")
	}
	for code, d := range s.Status.Ceph.Details {
		parts = append(parts, code+" ("+d.Message+")")
	}
	if len(parts) == 0 {
		return s.Status.Phase + " " + s.Status.Message
	}
	return strings.Join(parts, "; ")
}
