package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// UserNamespaces finds pods with hostUsers: false on one node.
type UserNamespaces struct {
	Client   kubernetes.Interface
	NodeName string
}

// maxConsumers bounds how many pods of a claim are read: a claim has up to 256, which its owner chooses.
const maxConsumers = 16

// PodByRunc returns the name of the first pod with hostUsers: false that the claim is reserved for, where the node's container runtime starts
// pods with runc by default, as containerd does and CRI-O, which has crun, does not; "" without one.
func (u UserNamespaces) PodByRunc(ctx context.Context, rc *resourceapi.ResourceClaim) (string, error) {
	node, err := u.Client.CoreV1().Nodes().Get(ctx, u.NodeName, cached)
	if err != nil {
		return "", fmt.Errorf("reading node %s: %w", u.NodeName, err)
	}
	if strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "cri-o://") {
		return "", nil
	}
	for i, consumer := range rc.Status.ReservedFor {
		if i == maxConsumers {
			break
		}
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		pod, err := podOf(ctx, u.Client, rc.Namespace, consumer.Name, consumer.UID)
		if err != nil {
			return "", fmt.Errorf("reading pod %s/%s: %w", rc.Namespace, consumer.Name, err)
		}
		if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
			return pod.Name, nil
		}
	}
	return "", nil
}

// podOf reads the pod with that UID. A pod that the API server's cache does not have yet is read from the store.
func podOf(ctx context.Context, client kubernetes.Interface, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	pods := client.CoreV1().Pods(namespace)
	found, err := pods.Get(ctx, name, cached)
	if apierrors.IsNotFound(err) || err == nil && found.UID != uid {
		found, err = pods.Get(ctx, name, metav1.GetOptions{})
	}
	if err == nil && found.UID != uid {
		err = errors.New("it was replaced")
	}
	return found, err
}
