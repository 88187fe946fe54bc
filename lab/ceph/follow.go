package ceph

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/castellan-storage/castellan/lab/ceph/kube"
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
func (l *Lab) follow(up context.Context, t *timeline) error {
	ctx, cancel := context.WithCancel(up)
	defer cancel()
	api, err := l.client()
	if err != nil {
		return err
	}
	news := make(chan seen)
	go watch(ctx, api, news, func(s status) seen { return seen{cluster: &s} }, "/apis/ceph.rook.io/v1/namespaces/"+Namespace+"/cephclusters")
	go watch(ctx, api, news, func(p corev1.Pod) seen { return seen{pod: &p} }, "/api/v1/namespaces/"+Namespace+"/pods")
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
			if s.cluster.Status.OSD.Up > 0 {
				// It takes a while to start, and is asked when all OSDs are up.
				l.kept(up)
			}
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

// watch sends each object that a watch of path tells of, until ctx ends.
func watch[T any](ctx context.Context, api *kube.Client, news chan<- seen, as func(T) seen, path string) {
	send := func(s seen) {
		s.at = time.Now()
		select {
		case news <- s:
		case <-ctx.Done():
		}
	}
	err := kube.Watch(ctx, api, path, "", func(o T) (bool, error) {
		send(as(o))
		return true, nil
	})
	send(seen{err: err})
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
