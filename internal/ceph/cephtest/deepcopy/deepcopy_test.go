package deepcopy

import (
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

type node struct {
	name     string
	parent   *node
	children []*node
	tags     map[string][]string
}

type world struct {
	mu    sync.Mutex
	root  *node
	byKey map[string]*node
	rng   *rand.Rand
	at    time.Time
	any   any
	array [2][]int
	out   io.Writer
	done  chan struct{}
	hook  func()
}

func TestOf(t *testing.T) {
	leaf := &node{name: "leaf", tags: map[string][]string{"a": {"1"}}}
	root := &node{name: "root", children: []*node{leaf}}
	leaf.parent = root
	var out strings.Builder
	w := &world{root: root, byKey: map[string]*node{"leaf": leaf}, rng: rand.New(rand.NewPCG(1, 1)), at: time.Now(),
		any: []any{"x", 1}, array: [2][]int{{1}, nil}, out: &out, done: make(chan struct{})}
	w.rng.IntN(5)
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Of(w, reflect.TypeFor[io.Writer](), reflect.TypeFor[chan struct{}]())
	if !c.mu.TryLock() {
		t.Error("the copy is locked")
	}
	if c.root == w.root || c.root.children[0] != c.byKey["leaf"] || c.byKey["leaf"].parent != c.root {
		t.Error("what is shared in the original must be shared in the copy, and with it nothing")
	}
	if c.out != w.out || c.done != w.done || !c.at.Equal(w.at) || c.at.Location() != w.at.Location() {
		t.Error("what was named is not as it was")
	}
	w.byKey["leaf"].tags["a"][0] = "2"
	w.byKey["new"] = root
	w.array[0][0] = 5
	w.any.([]any)[0] = "y"
	if got := c.byKey["leaf"].tags["a"][0]; got != "1" || len(c.byKey) != 1 || c.array[0][0] != 1 || c.array[1] != nil || c.any.([]any)[0] != "x" {
		t.Errorf("the copy has changed with the original: %+v", c)
	}
	if a, b := w.rng.Uint64(), c.rng.Uint64(); a != b {
		t.Error("the copy's randomness goes another way")
	}
}

func TestAFunctionIsRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a function was copied")
		}
	}()
	Of(&world{hook: func() {}})
}
