package mpsd

const (
	faultEnv = "MPSD_TEST_FAULT"
	initEnv  = "MPSD_TEST_INIT"
)

func runUntilFault() int { return 1 }
func runInit() int       { return 1 }
