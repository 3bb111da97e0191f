// Stream capture: what streams record instead of running it.
#pragma once
#include "call.h"
#include "driver.h"

namespace driver {

/// Adds work to the graph that a stream captures.
CUresult add_node(Stream& stream, Work work, GraphNodeType type);

/// Marks a capture as invalid; only its end is allowed after that.
void invalidate(Capture& capture);

/// Says whether the calling thread may make a call that could break a capture. If not, invalidates the captures.
bool unsafe_call_allowed();

/// Refuses use of the legacy stream while a blocking stream of its context captures.
CUresult check_implicit(Stream& stream);

/// Refuses a wait of the host for a stream that captures.
CUresult check_wait(Stream& stream);

/// Refuses a wait of the host for all streams of a context if one of them captures.
CUresult check_wait_all(Context& context);

/// Refuses a query of an event that was last recorded in a capture.
CUresult check_event(Event& event);

/// Takes a stream out of its capture, which becomes invalid; without its origin the capture ends.
void abandon(Stream& stream);

/// Records an event in a capturing stream.
void record_captured(Stream& stream, Event& event);

/// Makes a stream wait for an event where at least one of them belongs to a capture.
CUresult wait_captured(Stream& stream, Event& event);

}  // namespace driver
