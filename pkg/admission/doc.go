// Package admission refuses opaque configuration that no device can have when a claim, a template or a class with it is written,
// so that nobody waits for a pod to learn it. What is judged and how it is said is claim's; Prepare judges again, because nothing
// waits for the program that serves this.
package admission
