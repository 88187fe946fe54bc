//go:build !cgo

package conn

import "errors"

func dialRados(Config, bool) (handle, error) {
	return nil, errors.New("built without cgo: no librados")
}
