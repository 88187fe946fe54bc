// Package build makes what a lab is made of: Kubernetes, containerd, runc, CNI
// plugins and CoreDNS from Go modules, the Ceph image and the storage guest
// from Debian packages, the images and the containerd root that nodes start
// from. Every part is kept in the cache under a key of what makes it.
//
// It must not start a lab or know what runs in one.
package build
