package progress

import (
	"os"

	"golang.org/x/sys/unix"
)

// Terminal returns the options for writing to f: redrawing when it is a
// terminal that moves its cursor.
func Terminal(f *os.File) Options {
	size := func() (*unix.Winsize, error) { return unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) }
	if _, err := size(); err != nil || os.Getenv("TERM") == "dumb" {
		return Options{}
	}
	return Options{Terminal: true, Width: func() int {
		ws, err := size()
		if err != nil {
			return 0
		}
		return int(ws.Col)
	}}
}
