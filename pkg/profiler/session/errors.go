package session

import "errors"

// ErrInvalid is the error of a command that no node accepts.
var ErrInvalid = errors.New("invalid command")
