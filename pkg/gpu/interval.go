package gpu

// Interval is a time-slice interval: how long a process runs on a GPU before the next one does. Drivers have four, and no figures for them.
type Interval string

// The intervals, as configuration names them. A driver that was just loaded uses IntervalDefault.
const (
	IntervalDefault Interval = "Default"
	IntervalShort   Interval = "Short"
	IntervalMedium  Interval = "Medium"
	IntervalLong    Interval = "Long"
)
