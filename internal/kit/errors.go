package kit

import (
	"errors"
	"fmt"
)

// TerminalError says that the spec is wrong in a way that only the user can put
// right. It is shown as a condition that names the field, and it is not retried
// until the object changes.
type TerminalError struct {
	// Field is the path of the field: "spec.storage.deviceFilter". It may be empty if
	// the error is about the object as a whole.
	Field string
	// Reason is the reason of the condition: "InvalidSpec" unless set.
	Reason string
	// Message says what is wrong and what is allowed.
	Message string
	// Err is the cause, if there is one.
	Err error
}

// Terminal makes a TerminalError about a field.
func Terminal(field, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &TerminalError{Field: field, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Error implements error.
func (e *TerminalError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Unwrap gives the cause.
func (e *TerminalError) Unwrap() error { return e.Err }

// AsTerminal gives the TerminalError in a chain of errors.
func AsTerminal(err error) (*TerminalError, bool) { return errors.AsType[*TerminalError](err) }

// WaitError carries a Wait out of Observe or Do, where the end of a pass is found
// in the middle of a read or an effect.
type WaitError struct{ Wait Wait }

// Waiting makes an error that ends the pass with w and not as a failure.
func Waiting(w Wait) error { return &WaitError{Wait: w} }

// Error implements error.
func (e *WaitError) Error() string { return "waiting: " + e.Wait.String() }

// PanicError is a panic of a controller, with its stack. It is retried like any
// other error, and it is never a success.
type PanicError struct {
	Value any
	Stack string
}

// Error implements error. The stack is logged, not shown to the user.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// ImmutableError says that an object could not be applied since a field of it
// cannot be changed any more: a Deployment's selector, a Job's template, a
// StorageClass's parameters. The controller has to decide whether the object may be
// deleted and made again.
type ImmutableError struct {
	Object string // as given by Name
	Field  string
	Err    error
}

// Error implements error.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("applying %s: %s is immutable: %v", e.Object, e.Field, e.Err)
}

// Unwrap gives the answer of the API server.
func (e *ImmutableError) Unwrap() error { return e.Err }
