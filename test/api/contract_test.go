package api_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// compareReport is what `crdpaths.py compare -o` writes.
type compareReport struct {
	Total struct {
		Ref, Present, Missing, Extra, Type, Validation, Cel int
	} `json:"total"`
	CoveragePct float64 `json:"coveragePct"`
	CRDs        map[string]struct {
		CRD      string   `json:"crd"`
		Names    []string `json:"names"`
		Versions map[string]struct {
			Missing, Extra, TypeMismatch, Validation, Cel []string
		} `json:"versions"`
	} `json:"crds"`
}

// stricter are the only differences of validation that are allowed: limits that
// the contract does not have. Each makes room in the cost budget for a rule on
// the same value or on a list's items, or is itself the rule.
var stricter = regexp.MustCompile(`^(` + strings.Join([]string{
	// Names of CRUSH types, buckets and classes, and durations, in a pool.
	`spec\.((metadataPool|dataPool|dataPools\[\])\.)?(application|crushRoot|deviceClass|failureDomain|replicated\.(subFailureDomain|hybridStorage\.(primary|secondary)DeviceClass)|statusCheck\.mirror\.(interval|timeout)) maxLength`,
	`spec\.statusCheck\.mirror\.(interval|timeout) maxLength`,
	`spec\.dataPools maxItems`,
	`spec\.(dataPools\[\]|metadataPool)\.name maxLength`,
	// Object stores in shared pools.
	`spec\.sharedPools\.poolPlacements maxItems`,
	`spec\.sharedPools\.poolPlacements\[\]\.(dataNonECPoolName|dataPoolName|metadataPoolName|storageClasses\[\]\.dataPoolName) maxLength`,
	// The cluster: durations, zones, modules, and paths of disks.
	`spec\.healthCheck\.daemonHealth\.(mon|osd|status)\.(interval|timeout) maxLength`,
	`spec\.mon\.(stretchCluster\.)?zones maxItems`,
	`spec\.mon\.(stretchCluster\.)?zones\[\]\.name maxLength`,
	`spec\.mgr\.modules maxItems`,
	`spec\.mgr\.modules\[\]\.name maxLength`,
	`spec\.storage\.(nodes\[\]\.)?devices\[\]\.(name|fullpath) pattern`,
}, "|") + `): want null got `)

// ofKubernetes are fields inside types of Kubernetes that newer releases of it
// have.
var ofKubernetes = regexp.MustCompile(`\.volumeSource\.|\.volumes\[\]\.(volume|mount)\.`)

// documented reports whether a page names a path, or one that it is part of.
func documented(page, path string) bool {
	for {
		if strings.Contains(page, "`"+path+"`") || strings.Contains(page, "`"+path+"[]`") {
			return true
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return false
		}
		path = path[:cut]
	}
}

// TestCompareWithContract runs the comparison of the contract on deploy/crds.
// It needs the contract's data, in CASTELLAN_CONTRACT or beside the
// repository, and Python with PyYAML.
func TestCompareWithContract(t *testing.T) {
	contract := os.Getenv("CASTELLAN_CONTRACT")
	if contract == "" {
		contract = filepath.Join("..", "..", "..", "shared", "contract")
	}
	tool := filepath.Join(contract, "crds", "crdpaths.py")
	if _, err := os.Stat(tool); err != nil {
		t.Skipf("the contract's data is not at hand (set CASTELLAN_CONTRACT): %v", err)
	}
	if out, err := exec.Command("python3", "-c", "import yaml").CombinedOutput(); err != nil {
		t.Skipf("python3 with PyYAML is not at hand: %v %s", err, out)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	out, err := exec.Command("python3", tool, "compare",
		"--ref", filepath.Join(contract, "crds", "data"), "--got", crdDir, "-o", report).CombinedOutput()
	if err != nil {
		t.Fatalf("comparing: %v\n%s", err, out)
	}
	t.Logf("\n%s", out)

	raw, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got compareReport
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.CoveragePct != 100 || got.Total.Ref == 0 || len(got.CRDs) != kindsOfTheContract {
		t.Errorf("coverage is %.3f%% of %d paths in %d kinds, want 100%% of all in %d",
			got.CoveragePct, got.Total.Ref, len(got.CRDs), kindsOfTheContract)
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	limits := 0
	for name, crd := range got.CRDs {
		for _, n := range crd.Names {
			t.Errorf("%s: %s", name, n)
		}
		for _, v := range crd.Versions {
			for _, list := range [][]string{v.Missing, v.TypeMismatch, v.Cel} {
				for _, d := range list {
					t.Errorf("%s: %s", name, d)
				}
			}
			for _, path := range v.Extra {
				if !ofKubernetes.MatchString(path) && !documented(string(docs), path) {
					t.Errorf("%s: %s is ours and docs/reference/differences.md does not say so", name, path)
				}
			}
			for _, d := range v.Validation {
				if !stricter.MatchString(d) {
					t.Errorf("%s: %s", name, d)
					continue
				}
				limits++
			}
		}
	}
	t.Logf("%d limits of ours beside the contract", limits)
}

// TestRulesOurs counts the CEL rules, so that the figure in the documentation
// can be checked.
func TestRulesOurs(t *testing.T) {
	var lines []string
	total := 0
	for plural, crd := range loadCRDs(t) {
		raw, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(string(raw), `"rule":`)
		total += n
		if n > 0 {
			lines = append(lines, plural+" "+strings.Repeat("*", n))
		}
	}
	sort.Strings(lines)
	t.Logf("%d CEL rules\n%s", total, strings.Join(lines, "\n"))
	if total < 50 {
		t.Errorf("%d CEL rules: the contract alone has 50", total)
	}
}
