package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// placeholder is a word in angle brackets, such as <name>, which a browser
// would take for a tag. The line breaks that crd-ref-docs writes are none.
var placeholder = regexp.MustCompile(`<([A-Za-z][A-Za-z0-9 _.-]*)>`)

// writeReference makes one page per API group in docs/reference.
func writeReference(ctx context.Context, crdRefDocs, root string) error {
	dir := filepath.Join(root, "docs", "reference")
	for _, page := range []struct{ types, name string }{
		{"api/ceph/v1", "ceph.md"},
		{"api/csi/v1", "csi.md"},
		{"api/objectbucket/v1alpha1", "objectbucket.md"},
	} {
		out := filepath.Join(dir, page.name)
		abs, err := filepath.Abs(out)
		if err != nil {
			return fmt.Errorf("finding %s: %w", out, err)
		}
		if err := tool(ctx, root, crdRefDocs, "--log-level=ERROR", "--renderer=markdown", "--max-depth=20",
			"--config=hack/docs/config.yaml", "--source-path="+page.types, "--output-path="+abs); err != nil {
			return err
		}
		raw, err := os.ReadFile(out)
		if err != nil {
			return fmt.Errorf("reading a page: %w", err)
		}
		if err := os.WriteFile(out, placeholder.ReplaceAll(raw, []byte("&lt;$1&gt;")), 0o644); err != nil {
			return fmt.Errorf("writing a page: %w", err)
		}
	}
	return nil
}
