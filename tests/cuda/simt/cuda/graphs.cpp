// Graphs: what a capture gave, and its execution. Each chain of nodes becomes a branch, a stream of its own. So the
// executor can interleave branches with each other and with other streams.
#include "call.h"
#include "executor.h"
#include "kernels.h"

using namespace driver;

namespace {

/// A graph that is ready to run.
struct GraphExec {
    Context* context;
    std::shared_ptr<Graph> graph;       // as it was captured: its nodes are the handles
    std::vector<Node> nodes;            // as they run
    std::vector<Stream*> stream_of;     // by node
    std::vector<Stream*> branches;
};

unsigned long long launches = 0;

/// Returns the graph of a handle.
std::shared_ptr<Graph>& graph_of(void* handle) {
    return *static_cast<std::shared_ptr<Graph>*>(handle);
}

/// Gives each node a branch: that of the node before it, if no other node continues that one.
void assign_branches(GraphExec& exec) {
    std::map<size_t, Stream*> open;  // branches by their last node
    for (size_t i = 0; i < exec.nodes.size(); i++) {
        Stream* branch = nullptr;
        for (const size_t before : exec.nodes[i].after) {
            auto found = open.find(before);
            if (found == open.end()) continue;
            branch = found->second;
            open.erase(found);
            break;
        }
        if (!branch) {
            branch = make_stream(*exec.context, 0, 0, true);
            exec.branches.push_back(branch);
        }
        exec.stream_of.push_back(branch);
        open[i] = branch;
    }
}

/// Adds the nodes of a graph to the graph that a stream captures.
CUresult launch_in_capture(const GraphExec& exec, Stream& stream) {
    if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Node>& nodes = stream.capture->graph->nodes;
    const size_t offset = nodes.size();
    std::vector<bool> last(exec.nodes.size(), true);
    for (const Node& node : exec.nodes) {
        Node copy = node;
        for (size_t& before : copy.after) {
            last[before] = false;
            before += offset;
        }
        if (copy.after.empty()) copy.after = stream.frontier;
        nodes.push_back(std::move(copy));
    }
    if (exec.nodes.empty()) return CUDA_SUCCESS;
    stream.frontier.clear();
    for (size_t i = 0; i < last.size(); i++) {
        if (last[i]) stream.frontier.push_back(offset + i);
    }
    return CUDA_SUCCESS;
}

/// Returns the place of a node in its graph, or the number of nodes if it is not there.
size_t place_of(const GraphExec& exec, const void* node) {
    const std::vector<Node>& nodes = exec.graph->nodes;
    for (size_t i = 0; i < nodes.size(); i++) {
        if (&nodes[i] == node) return i;
    }
    return nodes.size();
}

/// Returns a pair of lists with the edges of a graph.
std::vector<std::pair<size_t, size_t>> edges_of(const Graph& graph) {
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t i = 0; i < graph.nodes.size(); i++) {
        for (const size_t before : graph.nodes[i].after) edges.push_back({before, i});
    }
    return edges;
}

}  // namespace

/// Makes a graph ready to run.
API CUresult cuGraphInstantiateWithFlags(void** handle, void* graph, unsigned long long) {
    const Call call;
    if (call.refused()) return call.error();
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    auto* exec = new GraphExec{.context = &call.context(), .graph = graph_of(graph)};
    exec->nodes = exec->graph->nodes;
    assign_branches(*exec);
    *handle = exec;
    return CUDA_SUCCESS;
}

/// Does nothing: there is nothing to upload.
API CUresult cuGraphUpload(void* handle, void* stream) {
    const Call call;
    if (call.refused()) return call.error();
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    return stream_of(stream, call.context()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/// Runs a graph in the order of a stream. Runs of one graph follow each other.
API CUresult cuGraphLaunch(void* handle, void* stream_handle) {
    const Call call;
    if (call.refused()) return call.error();
    auto* exec = static_cast<GraphExec*>(handle);
    Stream* stream = stream_of(stream_handle, call.context());
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return launch_in_capture(*exec, *stream);
    launches++;
    const auto marker = std::make_shared<Work>(Work{.name = "graph"});
    // An earlier run, perhaps in another stream, has to be over first.
    std::vector<RecordPtr> earlier;
    for (const Stream* branch : exec->branches) {
        if (branch->tail) earlier.push_back(branch->tail);
    }
    const RecordPtr start = append(*stream, marker, std::move(earlier));
    std::vector<RecordPtr> records;
    for (size_t i = 0; i < exec->nodes.size(); i++) {
        std::vector<RecordPtr> waits{start};
        for (const size_t before : exec->nodes[i].after) waits.push_back(records[before]);
        records.push_back(append(*exec->stream_of[i], exec->nodes[i].work, std::move(waits)));
    }
    append(*stream, marker, std::move(records));
    return CUDA_SUCCESS;
}

/// Destroys a graph. Executions of it stay.
API CUresult cuGraphDestroy(void* graph) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    delete static_cast<std::shared_ptr<Graph>*>(graph);
    return CUDA_SUCCESS;
}

/// Destroys an execution of a graph. Runs that are pending still happen.
API CUresult cuGraphExecDestroy(void* handle) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto* exec = static_cast<GraphExec*>(handle);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    for (Stream* branch : exec->branches) {
        branch->destroyed = true;
        if (!branch->queue.empty() || branch->running) continue;  // the executor deletes it
        state().streams.erase(branch);
        delete branch;
    }
    delete exec;
    return CUDA_SUCCESS;
}

/// Returns the nodes of a graph, or only their number if `nodes` is null.
API CUresult cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    std::vector<Node>& all = graph_of(graph)->nodes;
    for (size_t i = 0; nodes && i < *count; i++) nodes[i] = i < all.size() ? &all[i] : nullptr;
    *count = nodes ? std::min(*count, all.size()) : all.size();
    return CUDA_SUCCESS;
}

/// Returns what kind of work a node is.
API CUresult cuGraphNodeGetType(void* node, GraphNodeType* type) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    *type = static_cast<const Node*>(node)->type;
    return CUDA_SUCCESS;
}

/// Returns the edges of a graph, or only their number if `from` is null.
API CUresult cuGraphGetEdges(void* graph, void** from, void** to, size_t* count) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    std::vector<Node>& nodes = graph_of(graph)->nodes;
    const auto edges = edges_of(*graph_of(graph));
    for (size_t i = 0; from && to && i < std::min(*count, edges.size()); i++) {
        from[i] = &nodes[edges[i].first];
        to[i] = &nodes[edges[i].second];
    }
    *count = edges.size();
    return CUDA_SUCCESS;
}

/// Returns the edges of a graph; the newer form of the call. All edges are plain.
API CUresult cuGraphGetEdges_v2(void* graph, void** from, void** to, void*, size_t* count) {
    return cuGraphGetEdges(graph, from, to, count);
}

/// Changes the launch of a kernel node. It must stay the same kernel; runs that are pending keep the old launch.
API CUresult cuGraphExecKernelNodeSetParams_v2(void* handle, void* node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
    const Call call;
    if (call.refused()) return call.error();
    auto* exec = static_cast<GraphExec*>(handle);
    const size_t place = place_of(*exec, node);
    if (place == exec->nodes.size() || exec->nodes[place].type != NODE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    const LaunchShape shape{
        .grid = {parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
        .block = {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
        .dynamic_shared_bytes = parameters->sharedMemBytes,
    };
    Work work;
    auto* function = static_cast<Function*>(parameters->func);
    if (CUresult error = make_launch(*function, shape, parameters->kernelParams, work)) return error;
    if (work.name != exec->nodes[place].work->name) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    exec->nodes[place].work = std::make_shared<Work>(std::move(work));
    return CUDA_SUCCESS;
}

/// Returns how often graphs were launched in this process.
API unsigned long long simt_graph_launches() {
    const std::lock_guard lock(state().mutex);
    return launches;
}
