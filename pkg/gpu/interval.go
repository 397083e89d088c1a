package gpu

// Interval is how long a process runs on a GPU before the next gets its turn. Drivers have four lengths, and no figures for them.
type Interval string

// The intervals, as configuration names them. A driver that was just loaded uses IntervalDefault.
const (
	IntervalDefault Interval = "Default"
	IntervalShort   Interval = "Short"
	IntervalMedium  Interval = "Medium"
	IntervalLong    Interval = "Long"
)
