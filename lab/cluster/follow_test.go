package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
)

// What does not need nodes is done while they start, and the lab is not up before it is.
func TestServingIsDoneMeanwhile(t *testing.T) {
	t.Setenv(state.EnvRoot, t.TempDir())
	broken := errors.New("the API server took no CRD")
	for _, tc := range []struct {
		name    string
		serving func(ctx context.Context, served chan struct{}) error
		said    []control.Message
		want    string
	}{
		{"done", func(context.Context, chan struct{}) error { return nil }, []control.Message{{Serving: true}, {Step: "nodes"}, {Ready: true}}, ""},
		{
			"takes longer than the nodes", func(_ context.Context, served chan struct{}) error {
				<-served
				return nil
			}, []control.Message{{Serving: true}, {Ready: true}}, "",
		},
		{"fails", func(context.Context, chan struct{}) error { return broken }, []control.Message{{Serving: true}}, broken.Error()},
		{
			"the nodes fail meanwhile", func(ctx context.Context, _ chan struct{}) error {
				<-ctx.Done()
				return ctx.Err()
			}, []control.Message{{Serving: true}, {Error: "node1 does not start"}}, "node1 does not start",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			served, acknowledged := make(chan struct{}), make(chan struct{})
			go func() {
				out := json.NewEncoder(theirs)
				for _, m := range tc.said {
					if out.Encode(m) != nil {
						return
					}
				}
				time.AfterFunc(50*time.Millisecond, func() { close(served) })
				var ok bool
				if json.NewDecoder(theirs).Decode(&ok) == nil && ok {
					close(acknowledged)
				}
			}()
			config := ""
			err := follow(t.Context(), state.Lab{Name: "meanwhile"}, ours, func(ctx context.Context, kubeconfig string) error {
				config = kubeconfig
				return tc.serving(ctx, served)
			}, func(string) {})
			switch {
			case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v, want %q", err, tc.want)
			case !strings.HasSuffix(config, "kubeconfig"):
				t.Errorf("kubeconfig %q", config)
			case err == nil:
				<-acknowledged
				if tc.name == "takes longer than the nodes" {
					select {
					case <-served:
					default:
						t.Error("the lab was up before all was done")
					}
				}
			}
			_ = theirs.Close()
		})
	}
}
