package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
)

// errNoPod says that no pod runs that could be asked.
var errNoPod = errors.New("no pod runs")

// Exec runs a command in the first container of a pod with these labels
// ("app=rook-ceph-tools") that runs, and returns when it has ended: with an error if it
// did so with another code than 0. stdin may be nil.
func (c *Client) Exec(ctx context.Context, namespace, selector string, stdin io.Reader, stdout, stderr io.Writer, command ...string) error {
	pod, err := c.running(ctx, namespace, selector)
	if err != nil {
		return err
	}
	q := url.Values{"command": command, "container": {pod.Spec.Containers[0].Name}, "stdout": {"true"}, "stderr": {"true"}}
	if stdin != nil {
		q.Set("stdin", "true")
	}
	where := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/exec?%s", strings.TrimSuffix(c.cfg.Host, "/"), namespace, pod.Name, q.Encode())
	e, err := remotecommand.NewWebSocketExecutor(c.cfg, http.MethodGet, where)
	if err != nil {
		return fmt.Errorf("running %s in %s: %w", command[0], pod.Name, err)
	}
	if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr}); err != nil {
		return fmt.Errorf("running %s in %s: %w", command[0], pod.Name, err)
	}
	return nil
}

// running is a pod that runs, one that is ready if there is.
func (c *Client) running(ctx context.Context, namespace, selector string) (*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.Get(ctx, "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+url.QueryEscape(selector), &list); err != nil {
		return nil, err
	}
	var found *corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && (found == nil || ready(p)) {
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w with the labels %s", errNoPod, selector)
	}
	return found, nil
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
