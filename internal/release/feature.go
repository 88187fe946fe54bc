package release

// Feature is something that not every supported release can do.
type Feature string

// Features, and the faults of releases that the operator works around.
const (
	// AuthRotate is the command "auth rotate", by which cephx keys rotate.
	AuthRotate Feature = "auth-rotate"
	// AES256K is the cephx cipher aes256k, its keys of 60 characters, and the
	// options auth_allowed_ciphers and auth_preferred_cipher.
	AES256K Feature = "aes256k"
	// CABundleByEnvironment lets RGW take a CA bundle from CURL_CA_BUNDLE;
	// older releases need it in the system's store.
	CABundleByEnvironment Feature = "ca-bundle-by-environment"
	// StretchWeightTolerance lets the two sites of a stretch cluster differ by
	// 10 % in CRUSH weight.
	StretchWeightTolerance Feature = "stretch-weight-tolerance"
	// RookModuleUsable is the mgr module "rook" working at all: in some
	// releases it crashes in a loop, and the health warning about it stays for
	// two weeks.
	RookModuleUsable Feature = "rook-module"
)

// span is a run of releases, from the first to before the end.
type span struct{ first, end Version }

// whereFound says in which releases a feature is. The zero Version as an end
// means all later ones.
func whereFound(f Feature) []span {
	switch f {
	case AuthRotate: // backported to Squid in 19.2.3; Rook v1.21 uses it from there
		return []span{{first: V(19, 2, 3)}}
	case AES256K: // found in 20.2.4; Squid has no such cipher
		return []span{{first: V(20, 0, 0)}}
	case CABundleByEnvironment:
		return []span{{first: V(20, 0, 0)}}
	case StretchWeightTolerance:
		return []span{{first: V(20, 2, 2)}}
	case RookModuleUsable: // broken in 20.2.2 to 20.2.4
		return []span{{end: V(20, 2, 2)}, {first: V(20, 2, 5)}}
	}
	return nil
}

// Has says whether v has the feature. A version that is not known has none.
// During an upgrade the cluster has what its oldest daemon has (see
// Running.Oldest).
func (v Version) Has(f Feature) bool {
	if v.IsZero() {
		return false
	}
	for _, s := range whereFound(f) {
		if v.AtLeast(s.first) && (s.end.IsZero() || v.Compare(s.end) < 0) {
			return true
		}
	}
	return false
}
