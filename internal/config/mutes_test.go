package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
)

// The in-memory Ceph is asked until nothing is left to do, which must be at once.
func TestHealthCodesAreMutedAsTheSpecSays(t *testing.T) {
	c := cephtest.New(t)
	c.BootMon("a", cephtest.MonAddrs("192.0.2.1", false))
	c.SetHealth("BLUEFS_SPILLOVER", "HEALTH_WARN", "1 OSD(s) experiencing BlueFS spillover")
	ask := cephstatus.New(c)
	if err := ask.Mute(t.Context(), "BY_HAND"); err != nil {
		t.Fatal(err)
	}
	cl := &cephv1.CephCluster{}
	step := func(policies map[string]cephv1.HealthWarningMuteSpec, want ...string) {
		t.Helper()
		cl.Spec.HealthCheck.MuteHealthWarning = policies
		var got []string
		for range 2 {
			have, err := muted(t.Context(), cl, c)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range mutes(policies, have) {
				m, ok := a.(Mute)
				if !ok {
					t.Fatalf("%T", a)
				}
				got = append(got, m.String())
				if err := m.Do(t.Context(), ask); err != nil {
					t.Fatal(err)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	on, off := cephv1.HealthWarningMuteSpec{Policy: cephv1.HealthWarningMute}, cephv1.HealthWarningMuteSpec{Policy: cephv1.HealthWarningUnmute}
	step(nil)
	step(map[string]cephv1.HealthWarningMuteSpec{"BLUEFS_SPILLOVER": on, "OSD_NEARFULL": on, "PG_NOT_SCRUBBED": off}, "muting BLUEFS_SPILLOVER", "muting OSD_NEARFULL")
	step(map[string]cephv1.HealthWarningMuteSpec{"BLUEFS_SPILLOVER": off, "OSD_NEARFULL": on}, "counting BLUEFS_SPILLOVER in the health again")
	step(nil)
	h, err := ask.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]cephstatus.Mute{{Code: "BY_HAND", Sticky: true}, {Code: "OSD_NEARFULL", Sticky: true}}, h.Mutes); diff != "" {
		t.Error(diff)
	}
}

func TestAMuteThatIsNotStickyIsMadeSo(t *testing.T) {
	want := map[string]cephv1.HealthWarningMuteSpec{"OSD_DOWN": {Policy: cephv1.HealthWarningMute}}
	if got := mutes(want, []cephstatus.Mute{{Code: "OSD_DOWN"}}); len(got) != 1 {
		t.Errorf("it would be gone with the next OSD that goes down: %v", got)
	}
	if got := mutes(want, []cephstatus.Mute{{Code: "OSD_DOWN", Sticky: true}}); len(got) != 0 {
		t.Errorf("nothing is left to do: %v", got)
	}
}
