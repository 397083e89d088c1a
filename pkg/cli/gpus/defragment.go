package gpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	policyapi "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/screen"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// planTime is the time for the search for a plan: an expensive claim could take as long on each node.
const planTime = time.Minute

// defragmenting is a run of kubectl prism defragment.
type defragmenting struct {
	*viewer
	client *cluster.Client
	// pod is the argument.
	pod, gates string
}

func defragmentCommand(v *viewer) *cobra.Command {
	d := &defragmenting{viewer: v}
	command := &cobra.Command{
		Use:   "defragment POD",
		Short: "Plan which pods to move so that a pod gets its MIG device",
		Long: "Prints a plan that moves the fewest pods to make room for the device that a Pending pod requests, as commands of kubectl: taints of the " +
			"devices that overlap it, evictions, a wait, and the end of the taints. The plan moves pods with a controller and with claims of their own " +
			"that PodDisruptionBudgets and annotations let go, and for which the scheduler's allocator finds other devices. The command changes " +
			"nothing itself.",
		Example: "  kubectl prism defragment train-0 -n ml\n" +
			"  kubectl prism defragment train-0 -n ml -o commands > plan.sh",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			d.pod = strings.TrimPrefix(strings.TrimPrefix(args[0], "pods/"), "pod/")
			return d.run(command.Context())
		},
	}
	d.Bind(command.Flags())
	command.Flags().StringVarP(&d.format, "output", "o", "", "Output format: commands, json or yaml.")
	command.Flags().StringVar(&d.gates, "feature-gates", "", gatesUsage)
	return command
}

func (d *defragmenting) run(ctx context.Context) (err error) {
	if !slices.Contains([]string{"", "commands", "json", "yaml"}, d.format) {
		return fmt.Errorf("--output: unsupported value %q; supported values: commands, json, yaml", d.format)
	}
	if d.client, err = d.Connect(); err != nil {
		return err
	}
	features, err := view.Features(ctx, d.client, d.gates)
	if err != nil {
		return err
	}
	version, err := taintRules(d.client)
	if err != nil {
		return err
	}
	if version == "" || !features.DeviceTaints {
		return errors.New("the API server has no DeviceTaintRules, without which the devices of evicted pods go to the pods that replace them; " +
			"Kubernetes 1.37 has them, 1.36 with the feature gate DRADeviceTaintRules")
	}
	options := view.Options{Driver: d.client.Driver, AllDrivers: true, Namespace: d.client.Namespace, Pods: true, AllPods: true}
	picture, missing, err := view.Read(ctx, d.client, options)
	if err != nil {
		return err
	}
	if err := complete(picture, missing); err != nil {
		return err
	}
	pod, err := findPod(picture, d.client.Namespace, d.pod)
	if err != nil {
		return err
	}
	budgets := d.budgets(ctx)
	limited, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	plan, err := explain.Defragment(limited, explain.NewSolver(picture, features), pod, budgets)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the search for a plan for pod %s/%s takes longer than %s: "+
			"evaluating its claim's expressions takes too long, or too many pods could move", pod.Namespace, pod.Name, planTime)
	}
	if none, ok := errors.AsType[*explain.NoPlan](err); ok && none.Fits {
		_, err = fmt.Fprintln(d.ErrOut, safe(upper(none.Sentence)))
		return err
	}
	if err != nil {
		return err
	}
	return d.print(plan, version)
}

// complete returns an error if a part of the cluster could not be read, without which a plan could be wrong.
func complete(picture *clusterview.Cluster, missing []view.Missing) error {
	if picture.Scope.Namespace == "" && picture.Scope.TaintRules && picture.Scope.Nodes {
		return nil
	}
	var lines []string
	for _, right := range missing {
		lines = append(lines, right.String())
	}
	return fmt.Errorf("a plan requires to list nodes, DeviceTaintRules, and the pods and ResourceClaims of all namespaces: %s", strings.Join(lines, "; "))
}

// findPod returns a pod with claims.
func findPod(picture *clusterview.Cluster, namespace, name string) (*clusterview.Pod, error) {
	if pod := picture.FindPod(namespace, name); pod != nil {
		return pod, nil
	}
	var names []string
	for _, pod := range picture.Pods {
		if pod.Namespace == namespace {
			names = append(names, pod.Name)
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not exist, or requests no device%s", namespace, name, similar(name, names))
}

// taintRules returns the newest version of DeviceTaintRules that the API server has; "" for none.
func taintRules(client *cluster.Client) (string, error) {
	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		list, err := client.Discovery().ServerResourcesForGroupVersion(resourceapi.GroupName + "/" + version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", cluster.Explain("reading the API group resource.k8s.io", "get on /apis", err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "devicetaintrules" }) {
			return version, nil
		}
	}
	return "", nil
}

// budgets lists the PodDisruptionBudgets. Without the right to list them, the API server still refuses evictions that they forbid.
func (d *defragmenting) budgets(ctx context.Context) (all explain.Budgets) {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return d.client.PolicyV1().PodDisruptionBudgets("").List(ctx, options)
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if budget, ok := object.(*policyapi.PodDisruptionBudget); ok {
			all = append(all, budget)
		}
		return nil
	})
	if err != nil {
		err = cluster.Explain("listing PodDisruptionBudgets", "list on poddisruptionbudgets of policy in all namespaces", err)
		d.once(err.Error() + "; the API server refuses evictions that they forbid")
	}
	return all
}

// print writes the plan.
func (d *defragmenting) print(plan *explain.Plan, version string) error {
	line, secrets := kubectl(d.Flags)
	script := &script{plan: plan, version: version, kubectl: line}
	if len(secrets) > 0 {
		d.once(fmt.Sprintf("The commands leave out %s: add the %s, or use a kubeconfig", strings.Join(secrets, " and "), plural(len(secrets), "flag")))
	}
	switch d.format {
	case "json", "yaml":
		_, err := encode(d.Out, d.format, planJSON{Plan: plan, Rules: script.rules(), Commands: script.text()})
		return err
	case "commands":
		_, err := io.WriteString(d.Out, script.program())
		return err
	}
	_, err := io.WriteString(d.Out, planText(d.screen(), plan)+"\n"+script.text())
	return err
}

// kubectl begins a command line for the same cluster and user, with the flags of the connection. Flags with secrets, which must not be in a
// script, are left out and returned.
func kubectl(flags *genericclioptions.ConfigFlags) (line string, secrets []string) {
	line = "kubectl"
	for _, flag := range []struct {
		name  string
		value *string
	}{
		{"kubeconfig", flags.KubeConfig}, {"context", flags.Context}, {"cluster", flags.ClusterName}, {"user", flags.AuthInfoName},
		{"server", flags.APIServer}, {"tls-server-name", flags.TLSServerName}, {"certificate-authority", flags.CAFile},
		{"client-certificate", flags.CertFile}, {"client-key", flags.KeyFile}, {"as", flags.Impersonate}, {"as-uid", flags.ImpersonateUID},
		{"token", flags.BearerToken}, {"proxy-url", flags.ProxyURL},
	} {
		switch value := ptr.Deref(flag.value, ""); {
		case value == "":
		case flag.name == "token" || flag.name == "proxy-url" && strings.Contains(value, "@"): // a URL can contain a password
			secrets = append(secrets, "--"+flag.name)
		default:
			line += " --" + flag.name + "=" + quote(value)
		}
	}
	for _, group := range ptr.Deref(flags.ImpersonateGroup, nil) {
		line += " --as-group=" + quote(group)
	}
	for _, extra := range ptr.Deref(flags.ImpersonateUserExtra, nil) {
		line += " --as-user-extra=" + quote(extra)
	}
	if ptr.Deref(flags.Insecure, false) {
		line += " --insecure-skip-tls-verify"
	}
	return line, secrets
}

// planText describes a plan.
func planText(s screen.Screen, plan *explain.Plan) string {
	t := &plan.Target
	device := t.Device
	if t.Profile != "" {
		device = fmt.Sprintf("%s at memory slice %d", t.Profile, t.Start)
	}
	if t.GPU != "" {
		device += " of GPU " + strings.TrimPrefix(t.GPU, "gpu-")
	}
	pods := "1 pod moves"
	if len(plan.Moves) > 1 {
		pods = fmt.Sprintf("%d pods move", len(plan.Moves))
	}
	first := fmt.Sprintf("Pod %s/%s gets %s on node %s if %s:", plan.Namespace, plan.Pod, device, t.Node, pods)
	text := strings.Join(screen.Cuts(safe(first), "", "  ", s.Width), "\n") + "\n"
	columns := []screen.Column{
		{Title: "POD", Kind: screen.Name}, {Title: "DEVICES", Kind: screen.Word}, {Title: "OWNER", Kind: screen.Name}, {Title: "FITS ON", Kind: screen.Name},
	}
	var rows [][]string
	for i := range plan.Moves {
		m := &plan.Moves[i]
		rows = append(rows, []string{safe(m.Namespace + "/" + m.Pod), safe(m.Devices), safe(m.Owner), safe(m.To)})
	}
	text += s.Table(columns, rows, nil)
	for _, note := range append([]string{"nothing has been changed; these commands carry out the plan"}, plan.Notes...) {
		text += strings.Join(screen.Cuts(safe(upper(note))+".", "", "  ", s.Width), "\n") + "\n"
	}
	return text
}

// upper begins a sentence.
func upper(sentence string) string { return strings.ToUpper(sentence[:1]) + sentence[1:] }
