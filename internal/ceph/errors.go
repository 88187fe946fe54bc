package ceph

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Error is an answer of Ceph that is an errno. errors.Is(err, syscall.EBUSY)
// and the like work through it.
type Error struct {
	// Prefix is the command that was refused.
	Prefix string
	// Errno is positive, as in errno.h.
	Errno syscall.Errno
	// Status is Ceph's own sentence, possibly empty.
	Status string
}

// Error gives the command, Ceph's sentence and the errno's name.
func (e *Error) Error() string {
	name := unix.ErrnoName(e.Errno)
	if name == "" {
		name = fmt.Sprintf("errno %d", int(e.Errno))
	}
	if e.Status == "" {
		return fmt.Sprintf("ceph %s: %s", e.Prefix, name)
	}
	return fmt.Sprintf("ceph %s: %s (%s)", e.Prefix, e.Status, name)
}

// Unwrap gives the errno.
func (e *Error) Unwrap() error { return e.Errno }

// UnreachableError says that Ceph gave no answer: no connection, no quorum, no
// active mgr, or the deadline passed. Nothing about the cluster follows from
// it; in particular a mutating command may or may not have been carried out.
type UnreachableError struct {
	// Prefix is the command that got no answer; empty when connecting.
	Prefix string
	// Err is the cause. It is deliberately not part of the errors.Is chain
	// when it is an errno: librados says ENOENT for a mon address that does not
	// resolve, which must never read as "the thing asked for does not exist".
	Err error
}

// Error names what was being asked.
func (e *UnreachableError) Error() string {
	if e.Prefix == "" {
		return fmt.Sprintf("connecting to Ceph: %v", e.Err)
	}
	return fmt.Sprintf("ceph %s: no answer: %v", e.Prefix, e.Err)
}

// Unwrap gives context.Canceled or context.DeadlineExceeded when that is the
// cause, and nothing otherwise.
func (e *UnreachableError) Unwrap() error {
	switch {
	case errors.Is(e.Err, context.Canceled):
		return context.Canceled
	case errors.Is(e.Err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	}
	return nil
}

// Is makes every unreachable error match syscall.ETIMEDOUT, except one that the
// caller cancelled.
func (e *UnreachableError) Is(target error) bool {
	return target == syscall.ETIMEDOUT && !errors.Is(e.Err, context.Canceled)
}

// DecodeError says that Ceph answered with success but with something that
// cannot be read.
type DecodeError struct {
	// Prefix is the command.
	Prefix string
	// Err says what is wrong, without the reply itself, which may hold keys.
	Err error
}

// Error names the command.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("ceph %s: reading the reply: %v", e.Prefix, e.Err)
}

// Unwrap gives the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// Errno is the errno Ceph answered with; 0 when err is no answer of Ceph.
func Errno(err error) syscall.Errno {
	var e *Error
	if errors.As(err, &e) {
		return e.Errno
	}
	return 0
}

// NotFound reports whether Ceph itself said that the thing does not exist.
func NotFound(err error) bool { return Errno(err) == syscall.ENOENT }

// Busy reports whether Ceph refused because it is unsafe or in use now.
func Busy(err error) bool { return Errno(err) == syscall.EBUSY }

// Again reports whether Ceph cannot say yet (peering, missing statistics).
func Again(err error) bool { return Errno(err) == syscall.EAGAIN }

// Unreachable reports whether there was no answer at all.
func Unreachable(err error) bool {
	var e *UnreachableError
	return errors.As(err, &e)
}
