package ceph

import "context"

// Objects reads and writes single RADOS objects, for the few things that Ceph's
// own daemons read from there (the export list of an NFS server, the grace
// database). Errors are those of Commander: ENOENT when the pool or the object
// does not exist, *UnreachableError when there was no answer.
type Objects interface {
	// ReadObject gives the whole content of an object of at most max bytes;
	// EFBIG when there is more.
	ReadObject(ctx context.Context, at Object, max int) ([]byte, error)
	// WriteObject replaces the content, making the object if needed.
	WriteObject(ctx context.Context, at Object, data []byte) error
	// RemoveObject removes an object.
	RemoveObject(ctx context.Context, at Object) error
	// Omap gives all keys and values of an object's omap.
	Omap(ctx context.Context, at Object) (map[string][]byte, error)
	// SetOmap sets keys of an object's omap, making the object if needed.
	SetOmap(ctx context.Context, at Object, kv map[string][]byte) error
}

// Object names one RADOS object.
type Object struct {
	Pool string
	// Namespace is the RADOS namespace, often empty.
	Namespace string
	Name      string
}
