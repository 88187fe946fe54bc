package kittest

import (
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is what a process reads that has informers: each kind by itself stays behind
// what is written, and comes nearer now and then, never back, until the process is
// started anew (a first list may be answered by an API server that is behind itself).
// How far it stays behind depends on the seed only.
type Cache struct {
	s    *Store
	rng  *rand.Rand
	most int64
	seen map[schema.GroupKind]int64
	// news says that a kind has come nearer since it was last asked: watches tell all
	// controllers then, also those that have read it before.
	news bool
}

// Cache makes a cache whose kinds are up to most writes behind.
func (s *Store) Cache(seed uint64, most int) *Cache {
	c := &Cache{s: s, rng: rand.New(rand.NewPCG(seed, 1)), most: int64(min(most, memory-1)), seen: map[schema.GroupKind]int64{}}
	return c
}

// Client gives a client that reads from the cache and writes to the store.
func (c *Cache) Client() client.Client { return &storeClient{s: c.s, cache: c} }

// Restart is a new process: what it reads first may be older than what the last one
// has read.
func (c *Cache) Restart() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	clear(c.seen)
}

// Sync lets everything be read that is written.
func (c *Cache) Sync() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	now := c.s.at(c.s.moment)
	for gk, at := range c.seen {
		then := c.s.at(at)
		c.news = c.news || then[gk] != now[gk]
		c.seen[gk] = c.s.moment
	}
}

// News says whether anything has come nearer since the last call.
func (c *Cache) News() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	news := c.news
	c.news = false
	return news
}

// view gives the moment in which a kind is read now. The lock is held.
func (c *Cache) view(gk schema.GroupKind) objects {
	now := c.s.moment
	at, known := c.seen[gk]
	switch {
	case !known:
		at = now - c.rng.Int64N(c.most+1)
	default:
		switch c.rng.IntN(8) {
		case 0:
			at = now
		case 1, 2:
			at += c.rng.Int64N(now - at + 1)
		}
	}
	at = max(at, now-c.most)
	if known && c.s.at(c.seen[gk])[gk] != c.s.at(at)[gk] {
		c.news = true
	}
	c.seen[gk] = at
	return c.s.at(at)
}
