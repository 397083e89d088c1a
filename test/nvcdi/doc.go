// Package nvcdi compares the CDI specs of claims with the specs of NVIDIA's generator for the same devices of the same node.
package nvcdi
