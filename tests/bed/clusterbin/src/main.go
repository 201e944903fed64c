// SPDX-License-Identifier: Apache-2.0

// Package main is one binary that holds every Kubernetes component of the test cluster.
//
// One link in place of six saves most of the build time, and one file is copied into each node.
// The first argument names the component; a link to the binary with a component's name works too.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	args := os.Args
	name := filepath.Base(args[0])
	if _, known := components[name]; !known && name != "etcd" {
		if len(args) < 2 {
			fail("usage: cluster COMPONENT [flags]")
		}
		args = args[1:]
		name = args[0]
	}
	if name == "etcd" {
		etcdmain.Main(append([]string{"etcd"}, args[1:]...))
		return
	}
	newCommand, known := components[name]
	if !known {
		fail("cluster: no component named " + name)
	}
	os.Args = args
	os.Exit(cli.Run(newCommand()))
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(2)
}
