package model

import (
	"fmt"
	"strconv"
)

// Return is an NVML return code. As an error it is never Success: functions
// here return nil when they succeed.
type Return int32

// The return codes of a simulated node, with NVML's numbers.
const (
	Success               Return = 0
	Uninitialized         Return = 1
	InvalidArgument       Return = 2
	NotSupported          Return = 3
	NoPermission          Return = 4
	NotFound              Return = 6
	InsufficientSize      Return = 7
	DriverNotLoaded       Return = 9
	Timeout               Return = 10
	FunctionNotFound      Return = 13
	GPUIsLost             Return = 15
	ResetRequired         Return = 16
	OperatingSystem       Return = 17
	LibRMVersionMismatch  Return = 18
	InUse                 Return = 19
	OutOfMemory           Return = 20
	NoData                Return = 21
	InsufficientResources Return = 23
	VersionMismatch       Return = 25
	NotReady              Return = 27
	InvalidState          Return = 29
	Unknown               Return = 999
)

var returnTexts = map[Return]string{
	Success:               "Success",
	Uninitialized:         "Uninitialized",
	InvalidArgument:       "Invalid Argument",
	NotSupported:          "Not Supported",
	NoPermission:          "Insufficient Permissions",
	NotFound:              "Not Found",
	InsufficientSize:      "Insufficient Size",
	DriverNotLoaded:       "Driver Not Loaded",
	Timeout:               "Timeout",
	FunctionNotFound:      "Function Not Found",
	GPUIsLost:             "GPU is lost",
	ResetRequired:         "GPU requires reset",
	OperatingSystem:       "The operating system has blocked the request",
	LibRMVersionMismatch:  "RM has detected an NVML/RM version mismatch.",
	InUse:                 "In use by another client",
	OutOfMemory:           "Insufficient Memory",
	NoData:                "No data",
	InsufficientResources: "Insufficient Resources",
	VersionMismatch:       "Argument version mismatch",
	NotReady:              "Not Ready",
	InvalidState:          "Invalid State",
	Unknown:               "Unknown Error",
}

// Error is the text of nvmlErrorString.
func (r Return) Error() string {
	if text, ok := returnTexts[r]; ok {
		return text
	}
	return "Unknown Error"
}

// Returns lists every code and its text, for the library's nvmlErrorString.
func Returns() map[Return]string {
	texts := make(map[Return]string, len(returnTexts))
	for code, text := range returnTexts {
		texts[code] = text
	}
	return texts
}

// ParseReturn reads a code as its number ("15") or its text ("GPU is lost").
func ParseReturn(s string) (Return, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if _, ok := returnTexts[Return(n)]; ok {
			return Return(n), nil
		}
		return 0, fmt.Errorf("reading NVML return code %q: no such code is simulated", s)
	}
	for code, text := range returnTexts {
		if text == s {
			return code, nil
		}
	}
	return 0, fmt.Errorf("reading NVML return code %q: want a number such as 15, or a text such as %q", s, GPUIsLost.Error())
}
