// Package store stores the reports of profiled processes on a node: a folder per claim, with the plan that containers read, the inbox that
// they write to, and the files that were taken from it. Containers write the contents of an inbox, which are not trusted: they are opened
// beneath the inbox without links, read with limits, and copied, because a container may keep a file open that it wrote before.
//
// A claim whose counters are recorded has a second plan and inbox, in the directory of prism-collector, which no container reaches.
package store
