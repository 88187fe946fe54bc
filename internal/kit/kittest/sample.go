package kittest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Sample gives Every and Pick of a Scenario that is too much for each push: every
// usual-th effect, with -short every short-th, unless the environment says otherwise:
//
//	CASTELLAN_CRASH=full       every effect
//	CASTELLAN_CRASH=7          every 7th
//	CASTELLAN_CRASH_SHARD=2/5  of these the second of five parts
func Sample(t testing.TB, usual, short int) (every int, pick func(k int) bool) {
	t.Helper()
	every = usual
	if testing.Short() {
		every = short
	}
	switch v := os.Getenv("CASTELLAN_CRASH"); v {
	case "":
	case "full":
		every = 1
	default:
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("CASTELLAN_CRASH=%q: want full or a number", v)
		}
		every = n
	}
	return every, shard(t)
}

// shard is the part of the effects that CASTELLAN_CRASH_SHARD asks for.
func shard(t testing.TB) func(k int) bool {
	t.Helper()
	v := os.Getenv("CASTELLAN_CRASH_SHARD")
	if v == "" {
		return nil
	}
	a, of, ok := strings.Cut(v, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(of)
	if !ok || err1 != nil || err2 != nil || i < 1 || i > n {
		t.Fatalf("CASTELLAN_CRASH_SHARD=%q: want for instance 2/5", v)
	}
	return func(k int) bool { return k%n == i-1 }
}

// Random gives the number of runs that come from a seed (two crashes, caches that are
// behind): usual, unless CASTELLAN_CRASH_RANDOM has a number. None with -short.
func Random(t testing.TB, usual int) int {
	t.Helper()
	v := os.Getenv("CASTELLAN_CRASH_RANDOM")
	switch n, err := strconv.Atoi(v); {
	case v != "" && (err != nil || n < 0):
		t.Fatalf("CASTELLAN_CRASH_RANDOM=%q: want a number", v)
	case v != "":
		return n
	case testing.Short():
		return 0
	}
	return usual
}
