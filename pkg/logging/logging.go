// Package logging configures the logs of all programs of Prism in the same way.
package logging

import (
	"encoding/json"
	"fmt"

	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // log format "json"
	"k8s.io/klog/v2"
)

// Start sets the format, "text" or "json", and the verbosity, 0 to 10, of the process's logs, and logs the version and the effective
// settings. Call it once, and klog.Flush before the process exits.
func Start(format string, verbosity int, version string, settings any) (klog.Logger, error) {
	configuration := logsapi.NewLoggingConfiguration()
	configuration.Format = format
	configuration.Verbosity = logsapi.VerbosityLevel(verbosity) //nolint:gosec // validated to be 0 to 10
	logs.InitLogs()
	if err := logsapi.ValidateAndApply(configuration, nil); err != nil {
		return klog.Logger{}, fmt.Errorf("setting up the logs: %w", err)
	}
	effective, err := json.Marshal(settings)
	if err != nil {
		return klog.Logger{}, fmt.Errorf("setting up the logs: %w", err)
	}
	logger := klog.Background()
	logger.Info("Starting", "version", version, "config", string(effective))
	return logger, nil
}
