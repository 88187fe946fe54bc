package build

// Names of the parts, as --only takes them.
const (
	partKubernetes = "kubernetes"
	partContainerd = "containerd"
	partRunc       = "runc"
	partCNI        = "cni"
	partCoreDNS    = "coredns"
	partBin        = "bin"
	partCeph       = "ceph"
	partGuest      = "guest"
	partImages     = "images"
	partBase       = "base"
	partGolden     = "golden"
)

// PartsCluster and PartsGuest are what a cluster and a storage guest are made
// of: arguments for Lookup.
func PartsCluster() []string { return []string{partBin, partGolden} }

// PartsGuest are the parts of the storage guest.
func PartsGuest() []string { return []string{partGuest} }

// labParts are all parts, each after what it needs and the quick ones before
// the long ones of their lane, so that a mistake shows early.
func labParts(src string, loaded []LoadedImage) ([]*part, error) {
	var out []*part
	for _, f := range []func(string) (*part, error){containerdPart, runcPart, cniPart, corednsPart, kubernetesPart} {
		p, err := f(src)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return append(out, binPart(), cephPart(), guestPart(), imagesPart(), basePart(), goldenPart(loaded)), nil
}

// PartNames are the names of all parts.
func PartNames() []string {
	return []string{
		partKubernetes, partContainerd, partRunc, partCNI, partCoreDNS, partBin,
		partCeph, partGuest, partImages, partBase, partGolden,
	}
}
