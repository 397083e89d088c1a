package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// Logging configures the logs of a program.
type Logging struct {
	// LogVerbosity: 0 errors and warnings for operators, 2 decisions, 4 details, 6 traces.
	LogVerbosity int `json:"logVerbosity"`
	// LogFormat is "text" or "json".
	LogFormat string `json:"logFormat"`
}

var defaultLogging = Logging{LogVerbosity: 2, LogFormat: "text"}

func (l *Logging) flags(f *pflag.FlagSet) {
	f.IntVarP(&l.LogVerbosity, "log-verbosity", "v", l.LogVerbosity, "0 errors and warnings for operators, 2 decisions, 4 details, 6 traces")
	f.StringVar(&l.LogFormat, "log-format", l.LogFormat, "text or json")
}

func (l *Logging) validate(bad invalid) {
	if l.LogVerbosity < 0 || l.LogVerbosity > 10 {
		bad("log-verbosity", "must be between 0 and 10, got %d", l.LogVerbosity)
	}
	if !slices.Contains([]string{"text", "json"}, l.LogFormat) {
		bad("log-format", "unsupported value %q; supported values: text, json", l.LogFormat)
	}
}
