package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The mark of a device is an environment variable of the containers that use it: "PRISM_DEVICE_" and eight hex digits. If two devices set
// the same variable or mount at the same path, a container gets only the last one; their marks show both.
const (
	markPrefix = "PRISM_DEVICE_"
	markDigits = 8
)

// Mark returns the name of the variable that marks the device of that name in a CDI spec.
func Mark(device string) string {
	sum := sha256.Sum256([]byte(device))
	return markPrefix + hex.EncodeToString(sum[:])[:markDigits]
}

// IsMark reports whether a variable of that name is the mark of a device.
func IsMark(name string) bool {
	digits, ours := strings.CutPrefix(name, markPrefix)
	return ours && len(digits) == markDigits && strings.Trim(digits, "0123456789abcdef") == ""
}
