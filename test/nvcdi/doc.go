// Package nvcdi compares the CDI specs of claims with those that NVIDIA's generator makes for the same devices of the same node.
package nvcdi
