package cephtest

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Image is an RBD image as PutImage makes it.
type Image struct {
	Pool, Namespace, Name string
	// Mirrored registers the image for mirroring.
	Mirrored bool
}

// PutImage writes the objects by which an image is found, as librbd does, and gives
// the image's id. The pool must exist.
func (c *Cluster) PutImage(i Image) (id string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	id = strings.ReplaceAll(c.uuid(), "-", "")[:12]
	c.put(i.Pool, i.Namespace, "rbd_id."+i.Name, rbdString(id), nil)
	c.put(i.Pool, i.Namespace, "rbd_header."+id, nil, map[string][]byte{"object_prefix": rbdString("rbd_data." + id)})
	c.put(i.Pool, i.Namespace, "rbd_directory", nil, map[string][]byte{"name_" + i.Name: rbdString(id), "id_" + id: rbdString(i.Name)})
	if i.Mirrored {
		c.put(i.Pool, i.Namespace, "rbd_mirroring", nil, map[string][]byte{"image_" + id: rbdMirror(c.uuid())})
	}
	return id
}

// PutGroup writes the objects of an RBD group as librbd does. members are ids of images
// by the id of their pool.
func (c *Cluster) PutGroup(pool, namespace, name string, members map[int][]string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	id := strings.ReplaceAll(c.uuid(), "-", "")[:12]
	c.put(pool, namespace, "rbd_group_directory", nil, map[string][]byte{"name_" + name: rbdString(id), "id_" + id: rbdString(name)})
	kv := map[string][]byte{"snap_seq": make([]byte, 8)}
	for p, images := range members {
		for _, image := range images {
			kv[fmt.Sprintf("image_%016x_%s", p, image)] = []byte{0} // attached
		}
	}
	c.put(pool, namespace, "rbd_group_header."+id, nil, kv)
}

// PoolID gives the id of a pool.
func (c *Cluster) PoolID(name string) int {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.findPool(name)
	if p == nil {
		c.t.Fatalf("there is no pool %s", name)
	}
	return p.id
}

func (c *Cluster) put(pool, namespace, name string, data []byte, omap map[string][]byte) {
	c.t.Helper()
	if c.findPool(pool) == nil {
		c.t.Fatalf("there is no pool %s", pool)
	}
	at := ceph.Object{Pool: pool, Namespace: namespace, Name: name}
	x := c.objects[at]
	if x == nil {
		x = &object{omap: map[string][]byte{}}
		c.objects[at] = x
	}
	if data != nil {
		x.data = data
	}
	for k, v := range omap {
		x.omap[k] = v
	}
}

// rbdString is a string in Ceph's encoding.
func rbdString(s string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// rbdMirror is the entry of an image for which mirroring is on.
func rbdMirror(global string) []byte {
	body := append(rbdString(global), 1, 1) // enabled, by snapshots
	return append(binary.LittleEndian.AppendUint32([]byte{2, 1}, uint32(len(body))), body...)
}
