// Package store keeps the reports of profiled processes on a node: a folder per claim, with the plan that containers read, the inbox that
// they write into, and what was taken out of it. What is in an inbox is written by containers and is not trusted: it is opened beneath the
// inbox without links, read within bounds, and copied, because a container may keep a file open that it once wrote.
package store
