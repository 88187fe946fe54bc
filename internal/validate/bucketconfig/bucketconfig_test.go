package bucketconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/validate"
)

func TestParse(t *testing.T) {
	const policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}]}`
	const lifecycle = `{"Rules":[{"ID":"old","Status":"Enabled","Prefix":"","Expiration":{"Days":30}}]}`
	for _, tc := range []struct {
		title   string
		config  map[string]string
		allowed []string // nil: all
		want    Config
		keys    []string
		words   string
	}{
		{title: "nothing"},
		{
			title: "everything",
			config: map[string]string{
				"maxObjects": "1000", "maxSize": "2G", "bucketMaxObjects": "3k", "bucketMaxSize": "4Gi",
				"bucketPolicy": policy, "bucketLifecycle": lifecycle, "bucketOwner": "alice",
			},
			want: Config{
				MaxObjects: new(int64(1000)), MaxSize: new(int64(2e9)), BucketMaxObjects: new(int64(3000)), BucketMaxSize: new(int64(4 << 30)),
				BucketPolicy: policy, BucketLifecycle: lifecycle, BucketOwner: "alice",
			},
		},
		{title: "empty values are unset", config: map[string]string{"maxObjects": "", "bucketOwner": " "}},
		{title: "zero is a bound", config: map[string]string{"maxObjects": "0"}, want: Config{MaxObjects: new(int64(0))}},
		{title: "words for a number", config: map[string]string{"maxObjects": "many"}, keys: []string{"maxObjects"}, words: "not a number"},
		{title: "a negative number", config: map[string]string{"maxSize": "-1Gi"}, keys: []string{"maxSize"}, words: "negative"},
		{title: "half an object", config: map[string]string{"bucketMaxObjects": "0.5"}, keys: []string{"bucketMaxObjects"}, words: "whole"},
		{title: "a policy that is no JSON", config: map[string]string{"bucketPolicy": "allow all"}, keys: []string{"bucketPolicy"}, words: "no JSON object"},
		{title: "a policy of nothing", config: map[string]string{"bucketPolicy": `{"Version":"2012-10-17"}`}, keys: []string{"bucketPolicy"}, words: "no Statement"},
		{title: "a policy of no statement", config: map[string]string{"bucketPolicy": `{"Statement":[]}`}, keys: []string{"bucketPolicy"}, words: "empty"},
		{title: "a policy without effect", config: map[string]string{"bucketPolicy": `{"Statement":[{"Action":"*"}]}`}, keys: []string{"bucketPolicy"}, words: "neither Allow nor Deny"},
		{title: "a policy of one statement", config: map[string]string{"bucketPolicy": `{"Statement":{"Effect":"Deny"}}`}, want: Config{BucketPolicy: `{"Statement":{"Effect":"Deny"}}`}},
		{title: "a policy of words", config: map[string]string{"bucketPolicy": `{"Statement":["x"]}`}, keys: []string{"bucketPolicy"}, words: "Statement 1 is no object"},
		{title: "two policies", config: map[string]string{"bucketPolicy": policy + policy}, keys: []string{"bucketPolicy"}, words: "something after"},
		{title: "a policy too large", config: map[string]string{"bucketPolicy": strings.Repeat("x", maxPolicy+1)}, keys: []string{"bucketPolicy"}, words: "20480"},
		{title: "a lifecycle without rules", config: map[string]string{"bucketLifecycle": `{}`}, keys: []string{"bucketLifecycle"}, words: "no Rules"},
		{title: "a lifecycle without status", config: map[string]string{"bucketLifecycle": `{"Rules":[{"ID":"a"}]}`}, keys: []string{"bucketLifecycle"}, words: "neither Enabled nor Disabled"},
		{title: "a lifecycle too long", config: map[string]string{"bucketLifecycle": `{"Rules":[` + strings.Repeat("{},", maxLifecycleRules) + `{}]}`}, keys: []string{"bucketLifecycle"}, words: "1001 rules"},
		{title: "an owner like a flag", config: map[string]string{"bucketOwner": "--uid=admin"}, keys: []string{"bucketOwner"}, words: "starts with '-'"},
		{title: "an owner on two lines", config: map[string]string{"bucketOwner": "a\nb"}, keys: []string{"bucketOwner"}, words: "line break"},
		{title: "an owner too long", config: map[string]string{"bucketOwner": strings.Repeat("a", maxOwner+1)}, keys: []string{"bucketOwner"}},
		{title: "a key in the wrong case", config: map[string]string{"bucketpolicy": policy}, keys: []string{"bucketpolicy"}, words: "did you mean bucketPolicy?"},
		{title: "an unknown key", config: map[string]string{"replicas": "3"}, keys: []string{"replicas"}, words: "known are"},
		{title: "a key that is not allowed", config: map[string]string{"bucketOwner": "alice", "maxObjects": "5"}, allowed: DefaultAllowed(),
			want: Config{MaxObjects: new(int64(5))}, keys: []string{"bucketOwner"}, words: AllowSetting},
	} {
		t.Run(tc.title, func(t *testing.T) {
			allowed := tc.allowed
			if allowed == nil {
				allowed = Known()
			}
			got, problems := Parse(tc.config, allowed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
			var keys []string
			for _, p := range problems {
				keys = append(keys, p.Key)
				if p.Problem == "" || p.Hint == "" {
					t.Errorf("a problem without words: %+v", p)
				}
			}
			if diff := cmp.Diff(tc.keys, keys); diff != "" {
				t.Errorf("problems (-want +got):\n%s%s", diff, validate.Join(problems))
			}
			if !strings.Contains(validate.Join(problems), tc.words) {
				t.Errorf("want %q in %q", tc.words, validate.Join(problems))
			}
		})
	}
}

func TestParseAllowed(t *testing.T) {
	for setting, want := range map[string][]string{
		"":                           {"maxObjects", "maxSize"},
		" , ":                        {"maxObjects", "maxSize"},
		"bucketOwner":                {"bucketOwner"},
		"maxObjects, bucketPolicy,,": {"maxObjects", "bucketPolicy"},
	} {
		if diff := cmp.Diff(want, ParseAllowed(setting)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", setting, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("bucketPolicy", `{"Statement":[{"Effect":"Allow"}]}`)
	f.Add("bucketLifecycle", `{"Rules":null}`)
	f.Add("maxSize", "1e99")
	f.Fuzz(func(t *testing.T, key, value string) {
		c, problems := Parse(map[string]string{key: value}, Known())
		if len(problems) > 0 && c != (Config{}) {
			t.Errorf("%q = %q has problems %v and was still taken: %+v", key, value, problems, c)
		}
	})
}
