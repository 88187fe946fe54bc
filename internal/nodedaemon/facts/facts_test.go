package facts

import "testing"

func TestParse(t *testing.T) {
	want := Facts{UID: 64045, GID: 64045, Exporter: true}
	if got, err := Parse(want.String()); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, s := range []string{"", "{}", `{"uid":0,"gid":0}`, `{"uid":167}`, `{"uid":-1,"gid":167}`, "ceph version 20.2.4"} {
		if f, err := Parse(s); err == nil {
			t.Errorf("%q gives %+v", s, f)
		}
	}
}
