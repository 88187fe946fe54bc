package pid1

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFastFormat(t *testing.T) {
	fast := []string{"--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"}
	for _, c := range []struct {
		name     string
		in, want []string
	}{
		{"format", []string{"--batch-mode", "luksFormat", "/dev/x"}, append(fast, "--batch-mode", "luksFormat", "/dev/x")},
		{"own choice", []string{"--pbkdf", "argon2id", "luksFormat", "/dev/x"}, []string{"--pbkdf", "argon2id", "luksFormat", "/dev/x"}},
		{"open", []string{"luksOpen", "/dev/x", "y"}, []string{"luksOpen", "/dev/x", "y"}},
		{"nothing", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fastFormat(c.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	if _, err := ReadConfig(path); err == nil {
		t.Error("a missing file was accepted")
	}
	for content, ok := range map[string]bool{`{"hostname":"g","address":"10.0.0.2/30"}`: true, `{"address":"10.0.0.2"}`: false, `{`: false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(path)
		if (err == nil) != ok {
			t.Errorf("%s gives %+v, %v", content, c, err)
		}
	}
}
