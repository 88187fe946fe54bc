package poolparams

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/validate"
)

func keys(problems []validate.Problem) []string {
	var out []string
	for _, p := range problems {
		k := p.Key
		if p.Unknown {
			k += "?"
		}
		out = append(out, k)
	}
	return out
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		title      string
		parameters map[string]string
		want       []string // keys; with ? for unknown ones
		words      string
	}{
		{title: "nothing"},
		{title: "what people write", parameters: map[string]string{
			"compression_mode": "aggressive", "bulk": "true", "pg_num": "128", "pg_autoscale_mode": "on", "min_size": "2",
			"compression_required_ratio": ".875", "target_size_ratio": "0.5", "csum_type": "crc32c", "nodeep-scrub": "1",
			"compression_min_blob_size": "65536", "compression_max_blob_size": "512Ki", "deep_scrub_interval": "604800",
			"recovery_priority": "-5", "crush_rule": "replicated_rule", "read_ratio": "70", "fast_read": "0",
		}},
		{title: "a mode that is none", parameters: map[string]string{"compression_mode": "always"}, want: []string{"compression_mode"}, words: "none, passive, aggressive, force"},
		{title: "no placement group", parameters: map[string]string{"pg_num": "0"}, want: []string{"pg_num"}},
		{title: "too many placement groups", parameters: map[string]string{"pg_num": "100000"}, want: []string{"pg_num"}, words: "between 1 and 65536"},
		{title: "bounds of placement groups taken back", parameters: map[string]string{"pg_num_min": "0", "pg_num_max": "0"}},
		{title: "bounds crossed", parameters: map[string]string{"pg_num_min": "64", "pg_num_max": "32"}, want: []string{"pg_num_min"}, words: "above pg_num_max"},
		{title: "bounds alike", parameters: map[string]string{"pg_num_min": "32", "pg_num_max": "32"}},
		{title: "a flag that is none", parameters: map[string]string{"bulk": "maybe"}, want: []string{"bulk"}, words: "write true or false"},
		{title: "a ratio above one", parameters: map[string]string{"compression_required_ratio": "1.5"}, want: []string{"compression_required_ratio"}},
		{title: "bytes below none", parameters: map[string]string{"target_size_bytes": "-1"}, want: []string{"target_size_bytes"}},
		{title: "bytes in words", parameters: map[string]string{"target_size_bytes": "lots"}, want: []string{"target_size_bytes"}, words: "64Ki"},
		{title: "eleven copies", parameters: map[string]string{"size": "11"}, want: []string{"size"}},
		{title: "a rule with a command", parameters: map[string]string{"crush_rule": "a;b"}, want: []string{"crush_rule"}},
		{title: "a slip", parameters: map[string]string{"compression_mod": "none"}, want: []string{"compression_mod?"}, words: "did you mean compression_mode?"},
		{title: "something new", parameters: map[string]string{"colour_depth": "8"}, want: []string{"colour_depth?"}, words: "known are"},
		{title: "something new with a line break", parameters: map[string]string{"colour_depth": "8\nx"}, want: []string{"colour_depth?", "colour_depth"}},
		{title: "a flag for a key", parameters: map[string]string{"--yes-i-really-mean-it": "1"}, want: []string{"--yes-i-really-mean-it"}},
		{title: "no key", parameters: map[string]string{"": "1"}, want: []string{""}},
		{title: "a key with blanks", parameters: map[string]string{"pg num": "1"}, want: []string{"pg num"}},
		{title: "a number with a unit", parameters: map[string]string{"scrub_min_interval": "1d"}, want: []string{"scrub_min_interval"}, words: "seconds"},
		{title: "priority out of range", parameters: map[string]string{"recovery_priority": "11"}, want: []string{"recovery_priority"}},
		{title: "empty value", parameters: map[string]string{"pg_num": ""}, want: []string{"pg_num"}},
	} {
		t.Run(tc.title, func(t *testing.T) {
			got := Check(tc.parameters)
			if diff := cmp.Diff(tc.want, keys(got)); diff != "" {
				t.Errorf("problems (-want +got):\n%s%s", diff, validate.Join(got))
			}
			if !strings.Contains(validate.Join(got), tc.words) {
				t.Errorf("want %q in %q", tc.words, validate.Join(got))
			}
			for _, p := range got {
				if p.Problem == "" || p.Hint == "" {
					t.Errorf("a problem without words: %+v", p)
				}
			}
		})
	}
}

func TestEveryKnownKeyHasAType(t *testing.T) {
	for _, k := range Known() {
		if _, ok := parameterFor(k); !ok {
			t.Errorf("%s is offered as a hint and not known", k)
		}
	}
}

func TestConflictsWith(t *testing.T) {
	for _, tc := range []struct {
		parameters map[string]string
		size       uint
		want       []string
	}{
		{nil, 3, nil},
		{map[string]string{"size": "3"}, 3, nil},
		{map[string]string{"size": "2"}, 3, []string{"size"}},
		{map[string]string{"size": "2"}, 0, nil},
		{map[string]string{"min_size": "1"}, 3, nil},
	} {
		if diff := cmp.Diff(tc.want, keys(ConflictsWith(tc.parameters, tc.size))); diff != "" {
			t.Errorf("%v beside size %d (-want +got):\n%s", tc.parameters, tc.size, diff)
		}
	}
}
