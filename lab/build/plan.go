package build

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/castellan-storage/castellan/lab/cache"
)

// lane is what a part mostly waits for. Parts of one lane run one after
// another, lanes run side by side: on two cores a compiler and a package
// manager fit together, two compilers only share the memory they need.
type lane int

const (
	compiler lane = iota // Go and C compilers
	packages             // download, dpkg, images
)

// part is one thing in the cache.
type part struct {
	name  string
	title string
	lane  lane
	// recipe is what makes the part, besides the parts it needs.
	recipe []string
	needs  []string
	// space is what the part needs in the cache while it is made, in bytes.
	space int64
	// host are the Debian packages that making it needs on this machine.
	host []string
	// fetch, when not nil, downloads early what make needs, while others
	// compile.
	fetch func(ctx context.Context, j *job) error
	make  func(ctx context.Context, j *job) error
}

// job is the making of one part.
type job struct {
	dir   string            // empty, to be filled
	final string            // where dir will be afterwards
	deps  map[string]string // entries of the parts needed
	log   io.Writer
	note  func(string) // says what is being worked at
	warn  func(string) // says what the person must know
}

// plan is the set of parts that make a lab, in an order in which each comes
// after what it needs.
type plan struct {
	parts []*part
	keys  map[string]cache.Key
}

// newPlan checks and keys the parts.
func newPlan(parts []*part) (*plan, error) {
	p := &plan{parts: parts, keys: map[string]cache.Key{}}
	for _, pt := range parts {
		if _, dup := p.keys[pt.name]; dup {
			return nil, fmt.Errorf("two parts are named %s", pt.name)
		}
		recipe := append([]string{pt.name}, pt.recipe...)
		for _, n := range pt.needs {
			k, ok := p.keys[n]
			if !ok {
				return nil, fmt.Errorf("%s needs %s, which does not come before it", pt.name, n)
			}
			recipe = append(recipe, n, string(k))
		}
		p.keys[pt.name] = cache.NewKey(recipe...)
	}
	return p, nil
}

func (p *plan) part(name string) *part {
	for _, pt := range p.parts {
		if pt.name == name {
			return pt
		}
	}
	return nil
}

// names lists the parts, sorted.
func (p *plan) names() []string {
	var out []string
	for _, pt := range p.parts {
		out = append(out, pt.name)
	}
	sort.Strings(out)
	return out
}

// closure returns the wanted parts and what they need, in order; all of them
// when nothing is named.
func (p *plan) closure(only []string) ([]*part, error) {
	if len(only) == 0 {
		return p.parts, nil
	}
	want := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if want[name] {
			return
		}
		want[name] = true
		for _, n := range p.part(name).needs {
			visit(n)
		}
	}
	for _, name := range only {
		if p.part(name) == nil {
			return nil, fmt.Errorf("no part is named %q: the parts are %s", name, strings.Join(p.names(), ", "))
		}
		visit(name)
	}
	var out []*part
	for _, pt := range p.parts {
		if want[pt.name] {
			out = append(out, pt)
		}
	}
	return out, nil
}
