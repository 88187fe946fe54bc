package validate

import (
	"math"
	"testing"
)

func TestUnknownKey(t *testing.T) {
	known := []string{"databaseSizeMB", "walSizeMB", "deviceClass"}
	for key, want := range map[string]string{
		"databasesizemb":  "did you mean databaseSizeMB?",
		"database_sizeMB": "did you mean databaseSizeMB?",
		"deviceClas":      "did you mean deviceClass?",
		"walSize":         "did you mean walSizeMB?",
		"x":               "known are databaseSizeMB, deviceClass, walSizeMB",
	} {
		got := UnknownKey(key, known)
		if got.Hint != want || !got.Unknown || got.Key != key {
			t.Errorf("%s: got %+v, want the hint %q", key, got, want)
		}
	}
}

func TestIntAndFloat(t *testing.T) {
	for value, good := range map[string]bool{"1": true, "10": true, "0": false, "11": false, "": false, "1.5": false, "0x5": false, " 5": false, "99999999999999999999": false} {
		if _, problem := Int(value, 1, 10); (problem == "") != good {
			t.Errorf("Int(%q): %q", value, problem)
		}
	}
	for value, good := range map[string]bool{"0": true, "1": true, ".5": true, "1e-3": true, "1.01": false, "-0.1": false, "nan": false, "inf": false, "": false, "a": false} {
		if f, problem := Float(value, 0, 1); (problem == "") != good || math.IsNaN(f) && good {
			t.Errorf("Float(%q): %q", value, problem)
		}
	}
}

func TestIsCrushName(t *testing.T) {
	for name, want := range map[string]bool{"default": true, "default~ssd": true, "a.b-c_d": true, "": false, "-a": false, "a b": false, "a/b": false, "ä": false, "a\n": false} {
		if got := IsCrushName(name); got != want {
			t.Errorf("IsCrushName(%q) = %v", name, got)
		}
	}
}

func FuzzNearest(f *testing.F) {
	f.Add("walSize")
	f.Fuzz(func(t *testing.T, key string) {
		p := UnknownKey(key, []string{"a", "walSizeMB"})
		if p.Hint == "" {
			t.Errorf("no hint for %q", key)
		}
	})
}
