// Command generate makes everything that follows from the types in api/: the
// deep copy methods beside the types, the CustomResourceDefinitions in
// deploy/crds, and the API reference and the page of rules in docs/reference.
// Run it from the root of the repository:
//
//	go run ./hack/generate -controller-gen PATH -crd-ref-docs PATH
//
// Without -crd-ref-docs the API reference is left as it is.
//
// It calls controller-gen and then adjusts the CRDs where a marker cannot say
// what is meant (see adjust.go). It must not hold knowledge about a kind that
// a marker on the type could express.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	controllerGen := flag.String("controller-gen", "controller-gen", "the controller-gen program")
	crdRefDocs := flag.String("crd-ref-docs", "", "the crd-ref-docs program")
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	ctx := context.Background()
	err := run(ctx, *controllerGen, *root)
	if err == nil {
		err = writeRules(*root)
	}
	if err == nil && *crdRefDocs != "" {
		err = writeReference(ctx, *crdRefDocs, *root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, controllerGen, root string) error {
	crds := filepath.Join(root, "deploy", "crds")
	for _, dir := range []string{crds, filepath.Join(root, "docs", "reference")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
	}
	fresh, err := os.MkdirTemp("", "crds")
	if err != nil {
		return fmt.Errorf("making a working folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()

	// Floats are part of the contract (ratios), hence allowDangerousTypes; PVC
	// templates carry metadata, hence generateEmbeddedObjectMeta.
	if err := tool(ctx, root, controllerGen,
		"object", "paths=./api/..."); err != nil {
		return err
	}
	if err := tool(ctx, root, controllerGen,
		"crd:allowDangerousTypes=true,generateEmbeddedObjectMeta=true,crdVersions=v1",
		"paths=./api/...", "output:crd:dir="+fresh); err != nil {
		return err
	}
	made, err := filepath.Glob(filepath.Join(fresh, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the CRDs: %w", err)
	}
	if len(made) == 0 {
		return fmt.Errorf("controller-gen made no CRD from %s", filepath.Join(root, "api"))
	}
	keep := map[string]bool{}
	for _, file := range made {
		keep[filepath.Base(file)] = true
		if err := adjustFile(file, filepath.Join(crds, filepath.Base(file))); err != nil {
			return err
		}
	}
	return removeOthers(crds, keep)
}

// tool runs a program in the root of the repository and shows what it prints.
func tool(ctx context.Context, root, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s %v: %w", name, args, err)
	}
	return nil
}

// removeOthers deletes CRDs of kinds that no longer exist.
func removeOthers(dir string, keep map[string]bool) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, file := range files {
		if keep[filepath.Base(file)] {
			continue
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("removing the CRD of a kind that is gone: %w", err)
		}
	}
	return nil
}
