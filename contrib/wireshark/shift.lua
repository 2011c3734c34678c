-- SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB)
--
-- Shows Wireshark and tshark what processes with SHIFT say to each other: the messages of the control channel over
-- TCP, and the questions for GIDs over UDP. Wireshark loads it from a folder of plugins (Help, About, Folders),
-- tshark from there or by `-X lua_script:shift.lua`. Filters are `shift`, `shift.type == 10`,
-- `shift.from.qpn == 0x11a || shift.to.qpn == 0x11a`, `_ws.expert && shift` and the like.
--
-- The layout of all messages is in rdma/shift-wire.h, whose names are used here. What a receiver would refuse is
-- marked by expert information. With a job key, frames are sealed: only their type, number and key can be seen.

local MAGIC, VERSION = "SHFT", 5
local HEADER, SEAL, TAG = 20, 24, 16
local FRAME_MAX, ITEMS_MAX, DATAGRAM_MAX = 1024 * 1024, 65536, 128
local SEALED, GID_QUERY, GID_ANSWER = 1, 16, 17
local KEY_PORTS = 1024
local UDP = 3  -- pinfo.port_type

local shift = Proto("shift", "SHIFT control channel")
shift.prefs.port = Pref.uint("Port", 9473, "SHIFT_PORT. Connections at other ports, as those of job keys, are "
  .. "known by their first bytes.")

-- ---- what values mean

local TYPES = {
  "Hello", "HelloReply", "Confirm", "Bind", "Offer", "Accept", "Ready", "Members", "Drain", "Switch", "Progress",
  "KeyQuery", "KeyReply", "Refuse", "Close", "GidQuery", "GidAnswer", "KeysGone", "KeysForgotten", "Avoid", "Nics",
  "Probe",
}
local HELLO_STATUS = {[0] = "ok", "no such QP", "refused"}
local ACCEPT_STATUS = {[0] = "accepted", "refused", "busy"}
local READY_KIND = {[0] = "ready", "ask", "broken"}
local DRAIN_KIND = {[0] = "ask", "done", "cancel"}
local PROBE_KIND = {[0] = "offer", "accept", "refuse", "told"}
local PROBE_RESULT = {[0] = "nothing", "passed", "failed"}
local SWITCH_REASON = {[0] = "fault", "return"}
local REFUSE_REASON = {
  [0] = "unknown", "gone", "in error", "not protected", "no backup", "fence failed", "key missing",
}
local MTU = {"256", "512", "1024", "2048", "4096"}
local NO_YES = {[0] = "no", "yes"}

-- ---- fields of display filters, by their names after "shift."

local fields = {}

local function define(kind, name, title, ...)
  fields[name] = ProtoField[kind]("shift." .. name, title, ...)
end

define("string", "magic", "Magic")
define("uint8", "version", "Version")
define("uint8", "type", "Type", base.DEC, TYPES)
define("uint16", "flags", "Flags", base.HEX)
define("bool", "flags.sealed", "Sealed", 16, nil, SEALED)
define("uint32", "length", "Length in bytes")
define("uint64", "sequence", "Sequence number")
define("uint64", "key_id", "Id of the job key", base.HEX)
define("bytes", "sealed", "Sealed body")
define("bytes", "body", "Body")
define("bytes", "nonsense", "No frame")

-- A QP is a name: a GID, and a number.
for name, title in pairs({from = "From QP", to = "To QP", want = "QP that is looked for"}) do
  define("none", name, title)
  define("ipv6", name .. ".gid", "GID")
  define("uint32", name .. ".qpn", "QP number", base.HEX)
end
-- A path has a NIC of each end.
for name, title in pairs({path = "Path", ["progress.target"] = "Target"}) do
  define("none", name, title)
  define("uint8", name .. ".leader", "NIC of the leader")
  define("uint8", name .. ".follower", "NIC of the follower")
end
define("none", "address", "QP of the path")
define("ipv6", "address.gid", "GID")
define("uint32", "address.qpn", "QP number", base.HEX)
define("uint32", "address.psn", "Start PSN")
define("uint8", "address.mtu", "MTU", base.DEC, MTU)

define("bytes", "instance", "Instance")
define("bytes", "identity", "Public key")
define("bytes", "hello.target", "Instance that is looked for")
define("uint8", "pair", "Pair of addresses")
define("uint64", "key", "Id of the job key", base.HEX)
define("bytes", "nonce", "Nonce")
define("bytes", "tag", "Tag")
define("uint8", "hello_reply.status", "Status", base.DEC, HELLO_STATUS)
define("uint8", "hello_reply.reason", "Reason")

define("uint32", "bind.sq_psn", "Start PSN of what it sends")
define("uint32", "bind.rq_psn", "Start PSN of what it receives")
define("uint8", "bind.members_up", "NICs that work", base.HEX)
define("uint32", "bind.flags", "Flags", base.HEX)
define("bool", "bind.flags.has_sq_psn", "Has reached RTS", 32, nil, 1)
define("bool", "bind.flags.asks_responder", "Asks how far responders got", 32, nil, 2)
define("bool", "bind.flags.forgets_keys", "Knows KeysGone", 32, nil, 4)
define("bool", "bind.flags.heeds_avoid", "Knows Avoid", 32, nil, 8)
define("bool", "bind.flags.probes", "Knows Probe", 32, nil, 32)
define("bool", "bind.flags.tells_nics", "Knows Nics", 32, nil, 64)
define("bool", "bind.flags.has_more", "Has more NICs than it names", 32, nil, 128)
define("none", "item", "Item")
define("uint32", "count", "Number of items")
define("ipv6", "member", "GID of a NIC")

define("uint32", "generation", "Generation")
define("uint8", "accept.status", "Status", base.DEC, ACCEPT_STATUS)
define("uint8", "ready.kind", "Kind", base.DEC, READY_KIND)
define("uint32", "seq", "Count")
define("uint8", "members.up", "NICs that work", base.HEX)
define("uint8", "avoid.members", "NICs to leave", base.HEX)
define("uint8", "nics.capacity", "What it can carry, compared with the others")
define("uint8", "probe.kind", "Kind", base.DEC, PROBE_KIND)
define("uint8", "probe.own", "NIC of the sender")
define("uint8", "probe.peer", "NIC of the receiver")
define("uint8", "probe.result", "What the probe has shown", base.DEC, PROBE_RESULT)
define("uint32", "epoch", "Epoch")
define("uint32", "drain.attempt", "Attempt")
define("uint8", "drain.kind", "Kind", base.DEC, DRAIN_KIND)
define("uint8", "switch.reason", "Reason", base.DEC, SWITCH_REASON)
define("uint64", "progress.notifications_received", "Notifications received")
define("uint32", "progress.psn", "Next PSN that the responder expected")
define("uint32", "query_id", "Number of the query")
define("uint8", "query_member", "NIC that is asked for")
define("uint32", "rkey", "Key on the default NIC", base.HEX)
define("uint32", "new_rkey", "Key on the NIC that was asked for", base.HEX)
define("uint8", "found", "Found", base.DEC, NO_YES)
define("uint8", "refuse.reason", "Reason", base.DEC, REFUSE_REASON)
define("uint32", "number", "Number of the KeysGone")
define("uint8", "all", "All keys", base.DEC, NO_YES)
define("uint64", "gid_nonce", "Nonce", base.HEX)
define("ipv6", "gid", "GID")
define("ipv6", "gid_answer.address", "Address")

-- ---- what a receiver would say of it

local experts = {}

local function expect(name, text, group, severity)
  experts[name] = ProtoExpert.new("shift.expert." .. name, text, group, severity)
end

expect("magic", "No frame of SHIFT", expert.group.MALFORMED, expert.severity.ERROR)
expect("version", "Another version: its layout is not known here", expert.group.PROTOCOL, expert.severity.WARN)
expect("flags", "Unknown flags", expert.group.MALFORMED, expert.severity.ERROR)
expect("length", "The length is out of bounds", expert.group.MALFORMED, expert.severity.ERROR)
expect("type", "Unknown type, perhaps of a newer build", expert.group.UNDECODED, expert.severity.WARN)
expect("short", "The body is too short for its message", expert.group.MALFORMED, expert.severity.ERROR)
expect("long", "The body is too long for its message", expert.group.MALFORMED, expert.severity.ERROR)
expect("items", "There are more items than may be, or than there are bytes for", expert.group.MALFORMED,
  expert.severity.ERROR)
expect("flag", "Neither 0 nor 1", expert.group.MALFORMED, expert.severity.ERROR)
expect("value", "Unknown value, perhaps of a newer build", expert.group.PROTOCOL, expert.severity.NOTE)
expect("cut", "The rest of the frame is not in the capture, or not reassembled", expert.group.REASSEMBLE,
  expert.severity.NOTE)
expect("transport", "This message does not go by this transport", expert.group.PROTOCOL, expert.severity.WARN)
expect("datagram", "A datagram is one message of at most 128 bytes", expert.group.PROTOCOL, expert.severity.WARN)

local function listed(named)
  local list = {}
  for _, one in pairs(named) do list[#list + 1] = one end
  return list
end
shift.fields = listed(fields)
shift.experts = listed(experts)

-- ---- the parts of bodies

-- A body is what is left of a frame's bytes: from `at` to `stop` in `tvb`. `text` goes into the list of packets.
local function take(body, size)
  if body.stop - body.at < size then
    -- A frame that is not all here says nothing about its sender.
    if not body.is_cut then body.tree:add_proto_expert_info(experts.short) end
    body.is_over = true
    return nil
  end
  local range = body.tvb(body.at, size)
  body.at = body.at + size
  return range
end

-- Each reader adds one part under `tree`, and returns its value if that is a small number.
local readers = {}

local function number(size)
  return function(body, tree, name, values, severity)
    local range = take(body, size)
    if not range then return nil end
    local item = tree:add_le(fields[name], range)
    if size > 4 then return nil end
    local value = range:le_uint()
    if values and not values[value] then item:add_proto_expert_info(severity or experts.value) end
    return value
  end
end

local function raw(size)
  return function(body, tree, name)
    local range = take(body, size)
    if range then tree:add(fields[name], range) end
  end
end

readers.u8, readers.u32, readers.u64 = number(1), number(4), number(8)
readers.bytes16, readers.bytes32, readers.gid = raw(16), raw(32), raw(16)

function readers.flag(body, tree, name)
  return readers.u8(body, tree, name, NO_YES, experts.flag)
end

-- A part with a line of its own in the tree: as long as its parts, as far as they are here. Nothing, if none is.
local function branch(body, tree, name, size)
  local here = math.min(size, body.stop - body.at)
  if here > 0 then return tree:add(fields[name], body.tvb(body.at, here)) end
  take(body, size)
  return nil
end

function readers.qp(body, tree, name, text)
  local part = branch(body, tree, name, 20)
  if not part then return end
  readers.gid(body, part, name .. ".gid")
  local qpn = not body.is_over and readers.u32(body, part, name .. ".qpn")
  if not qpn then return end
  part:append_text(string.format(": 0x%x", qpn))
  -- A Hello for a process names no QPs.
  if qpn ~= 0 then body.text[#body.text + 1] = string.format(text, qpn) end
end

function readers.path(body, tree, name)
  local part = branch(body, tree, name, 2)
  if not part then return end
  local leader = readers.u8(body, part, name .. ".leader")
  local follower = leader and readers.u8(body, part, name .. ".follower")
  if not follower then return end
  part:append_text(string.format(": %d, %d", leader, follower))
  body.text[#body.text + 1] = string.format("path %d, %d", leader, follower)
end

function readers.address(body, tree, name)
  local part = branch(body, tree, name, 25)
  if not part then return end
  readers.gid(body, part, name .. ".gid")
  for _, one in ipairs({"qpn", "psn"}) do
    if not body.is_over then readers.u32(body, part, name .. "." .. one) end
  end
  -- The address of an answer that says no is empty.
  if not body.is_over then readers.u8(body, part, name .. ".mtu") end
end

function readers.bind_flags(body, tree, name)
  local range = take(body, 4)
  if not range then return end
  local item = tree:add_le(fields[name], range)
  for _, one in ipairs({"has_sq_psn", "asks_responder", "forgets_keys", "heeds_avoid", "probes",
    "tells_nics", "has_more"}) do
    item:add_le(fields[name .. "." .. one], range)
  end
end

-- Adds all parts of a layout: each is the name of a reader and what it wants.
local function parts_add(body, tree, layout)
  for _, part in ipairs(layout) do
    if body.is_over then return end
    local value = readers[part[1]](body, tree, part[2], part[3])
    local is_told = part[2] == "epoch" or part[2] == "generation"
    if value and is_told then body.text[#body.text + 1] = string.format("%s %d", part[2], value) end
    if value and type(part[3]) == "table" and part[1] == "u8" and part[3][value] then
      body.text[#body.text + 1] = part[3][value]
    end
  end
end

-- The number of items, and the items, of `size` bytes each.
function readers.list(body, tree, layout, size)
  local count = readers.u32(body, tree, "count")
  if not count then return end
  local room = math.floor((body.stop - body.at) / size)
  if count > ITEMS_MAX or (count > room and not body.is_cut) then
    tree:add_proto_expert_info(experts.items)
    body.is_over = true
    return
  end
  for _ = 1, count do
    local part = #layout == 1 and tree or branch(body, tree, "item", size)
    if part then parts_add(body, part, layout) end
    if body.is_over then return end
  end
end

-- ---- the bodies

local PAIR = {{"qp", "from", "0x%x ->"}, {"qp", "to", "0x%x"}}
local SEARCH = {{"qp", "want", "for 0x%x"}, {"qp", "from", "of 0x%x"}}

local function after_pair(...)
  return {PAIR[1], PAIR[2], ...}
end

local LAYOUTS = {
  Hello = {
    {"bytes16", "instance"}, {"bytes32", "identity"}, {"bytes16", "hello.target"}, SEARCH[1], SEARCH[2],
    {"u8", "pair"}, {"u64", "key"}, {"bytes16", "nonce"}, {"bytes16", "tag"},
  },
  HelloReply = {
    {"bytes16", "instance"}, {"bytes32", "identity"}, {"bytes16", "nonce"}, SEARCH[1], SEARCH[2],
    {"u8", "hello_reply.status", HELLO_STATUS}, {"u8", "hello_reply.reason"}, {"bytes16", "tag"},
  },
  Confirm = {{"bytes16", "tag"}},
  Bind = after_pair({"u32", "bind.sq_psn"}, {"u32", "bind.rq_psn"}, {"u8", "bind.members_up"},
    {"list", {{"gid", "member"}}, 16}, {"bind_flags", "bind.flags"}, {"u32", "epoch"}),
  Offer = after_pair({"path", "path"}, {"u32", "generation"}, {"address", "address"}),
  Accept = after_pair({"path", "path"}, {"u32", "generation"}, {"u8", "accept.status", ACCEPT_STATUS},
    {"address", "address"}),
  Ready = after_pair({"path", "path"}, {"u32", "generation"}, {"u8", "ready.kind", READY_KIND}),
  Members = after_pair({"u32", "seq"}, {"u8", "members.up"}),
  Drain = after_pair({"u32", "epoch"}, {"u32", "drain.attempt"}, {"u8", "drain.kind", DRAIN_KIND}),
  Switch = after_pair({"u32", "epoch"}, {"u32", "seq"}, {"u8", "switch.reason", SWITCH_REASON}),
  Progress = after_pair({"u32", "epoch"}, {"u32", "seq"}, {"u64", "progress.notifications_received"},
    {"path", "progress.target"}, {"u32", "generation"},
    {"list", {{"path", "path"}, {"u32", "generation"}, {"u32", "progress.psn"}}, 10}),
  KeyQuery = after_pair({"u32", "epoch"}, {"u32", "query_id"}, {"u8", "query_member"},
    {"list", {{"u32", "rkey"}}, 4}),
  KeyReply = after_pair({"u32", "query_id"}, {"u8", "query_member"},
    {"list", {{"u32", "rkey"}, {"u32", "new_rkey"}, {"flag", "found"}}, 9}),
  Refuse = after_pair({"u32", "epoch"}, {"u8", "refuse.reason", REFUSE_REASON}),
  Close = PAIR,
  GidQuery = {{"u64", "gid_nonce"}, {"gid", "gid"}, {"u64", "key"}, {"bytes16", "tag"}},
  GidAnswer = {{"u64", "gid_nonce"}, {"gid", "gid"}, {"gid", "gid_answer.address"}, {"bytes16", "tag"}},
  KeysGone = after_pair({"u32", "epoch"}, {"u32", "number"}, {"flag", "all"}, {"list", {{"u32", "rkey"}}, 4}),
  KeysForgotten = after_pair({"u32", "number"}),
  Avoid = after_pair({"u32", "seq"}, {"u8", "avoid.members"}),
  Nics = after_pair({"list", {{"gid", "member"}, {"u8", "nics.capacity"}}, 17}),
  Probe = after_pair({"u8", "probe.kind", PROBE_KIND}, {"u8", "probe.own"}, {"u8", "probe.peer"},
    {"u32", "number"}, {"u8", "probe.result", PROBE_RESULT}, {"address", "address"}),
}

local function body_add(body, name)
  parts_add(body, body.tree, LAYOUTS[name])
  if not body.is_over and body.at < body.stop then
    body.tree:add(fields.body, body.tvb(body.at, body.stop - body.at))
    body.tree:add_proto_expert_info(experts.long)
  end
end

local function sealed_add(body)
  readers.u64(body, body.tree, "key_id")
  if body.is_over then return end
  local secret = math.max(0, body.stop - body.at - (body.is_cut and 0 or TAG))
  if secret > 0 then body.tree:add(fields.sealed, body.tvb(body.at, secret)) end
  body.at = body.at + secret
  if not body.is_cut then readers.bytes16(body, body.tree, "tag") end
end

-- ---- frames

-- What the header at `at`, which is all here, says.
local function header_of(tvb, at)
  return {
    version = tvb(at + 4, 1):uint(), type = tvb(at + 5, 1):uint(), flags = tvb(at + 6, 2):le_uint(),
    length = tvb(at + 8, 4):le_uint(),
  }
end

-- The expert information for a header after which nobody knows where the next frame begins; or nil.
local function judge(header)
  if header.version ~= VERSION then return experts.version end
  if header.flags ~= 0 and header.flags ~= SEALED then return experts.flags end
  local seal = header.flags == SEALED and SEAL or 0
  if header.length < HEADER + seal or header.length > FRAME_MAX + seal then return experts.length end
  return nil
end

local function header_add(tree, tvb, at)
  tree:add(fields.magic, tvb(at, 4))
  tree:add(fields.version, tvb(at + 4, 1))
  tree:add(fields.type, tvb(at + 5, 1))
  local flags = tree:add_le(fields.flags, tvb(at + 6, 2))
  flags:add_le(fields["flags.sealed"], tvb(at + 6, 2))
  tree:add_le(fields.length, tvb(at + 8, 4))
  tree:add_le(fields.sequence, tvb(at + 12, 8))
end

-- Adds the frame at `at`, of which `size` bytes are here. Returns what the list of packets says of it.
local function frame_add(tvb, at, size, header, pinfo, root)
  local name = TYPES[header.type]
  local tree = root:add(shift, tvb(at, size))
  header_add(tree, tvb, at)
  local body = {
    tvb = tvb, at = at + HEADER, stop = at + size, is_cut = size < header.length, tree = tree, text = {},
  }
  local is_datagram = pinfo.port_type == UDP
  if name and (header.type == GID_QUERY or header.type == GID_ANSWER) ~= is_datagram then
    tree:add_proto_expert_info(experts.transport)
  end
  if is_datagram and (tvb:reported_len() > DATAGRAM_MAX or size < tvb:len()) then
    tree:add_proto_expert_info(experts.datagram)
  end
  local title = name or string.format("type %d", header.type)
  if header.flags == SEALED then
    title = "sealed " .. title
    sealed_add(body)
  elseif name then
    body_add(body, name)
  elseif body.at < body.stop then
    tree:add(fields.body, tvb(body.at, body.stop - body.at))
  end
  if not name then tree:add_proto_expert_info(experts.type) end
  if body.is_cut then tree:add_proto_expert_info(experts.cut) end
  if #body.text > 0 then title = title .. " " .. table.concat(body.text, " ") end
  tree:append_text(", " .. title)
  return title
end

-- Adds bytes that are no frame, with all that follows. Returns what the list of packets says of them.
local function nonsense_add(tvb, at, root, why, header)
  local tree = root:add(shift, tvb(at))
  if header then
    header_add(tree, tvb, at)
    tree:append_text(string.format(", version %d", header.version))
  end
  local skipped = header and HEADER or 0
  if tvb:len() - at > skipped then tree:add(fields.nonsense, tvb(at + skipped)) end
  tree:add_proto_expert_info(why)
  return header and "no frame of version " .. VERSION or "no frame"
end

-- Whether the bytes at `at` may begin a frame: as far as they are here, they are the magic.
local function may_begin(tvb, at)
  for i = 1, math.min(#MAGIC, tvb:len() - at) do
    if tvb(at + i - 1, 1):uint() ~= MAGIC:byte(i) then return false end
  end
  return true
end

-- Adds the frame at `at`. Returns where the next one begins, and what the list of packets says; or nil, and how
-- many more bytes it needs, if it has to wait for them.
local function next_add(tvb, at, pinfo, root, can_wait)
  local left = tvb:len() - at
  if not may_begin(tvb, at) then return tvb:len(), nonsense_add(tvb, at, root, experts.magic) end
  if left < HEADER then
    if can_wait then return nil, DESEGMENT_ONE_MORE_SEGMENT end
    return tvb:len(), nonsense_add(tvb, at, root, experts.cut)
  end
  local header = header_of(tvb, at)
  local why = judge(header)
  if why then return tvb:len(), nonsense_add(tvb, at, root, why, header) end
  if left < header.length and can_wait then return nil, header.length - left end
  local size = math.min(left, header.length)
  return at + size, frame_add(tvb, at, size, header, pinfo, root)
end

-- Called once more for what follows a frame that was put together from segments, with the same columns.
local function columns_set(pinfo, said)
  pinfo.cols.protocol = "SHIFT"
  pinfo.cols.info:clear()
  pinfo.cols.info:append((pinfo.private.shift and "; " or "") .. table.concat(said, "; "))
  pinfo.cols.info:fence()
  pinfo.private.shift = "said"
end

local function dissect(tvb, pinfo, root)
  local can_wait = pinfo.can_desegment > 0 and tvb:reported_len() == tvb:len()
  local at, said = 0, {}
  while at < tvb:len() do
    local next_at, text = next_add(tvb, at, pinfo, root, can_wait)
    if not next_at then
      pinfo.desegment_offset, pinfo.desegment_len = at, text
      break
    end
    said[#said + 1] = text
    at = next_at
  end
  if #said > 0 then columns_set(pinfo, said) end
  return tvb:len()
end

-- ---- where it is called

shift.dissector = dissect

-- What is at no port of its own is known by its first bytes. A connection stays known then.
local function heuristic(tvb, pinfo, root)
  if tvb:len() < #MAGIC or not may_begin(tvb, 0) then return false end
  pinfo.conversation = shift
  dissect(tvb, pinfo, root)  -- called as a dissector, it could not ask for more segments
  return true
end

shift:register_heuristic("tcp", heuristic)
shift:register_heuristic("udp", heuristic)

-- Heuristics are asked last, and the dialer's port may be that of another protocol. So the ports of job keys are
-- taken where they are free, and what does not begin as a frame does is left to others.
local keyed = Proto("shift_keyed", "SHIFT control channel at the port of a job key")

function keyed.dissector(tvb, pinfo, root)
  return heuristic(tvb, pinfo, root) and tvb:len() or 0
end

-- The port of a job key is one of these (net/secrets.cc has the rule).
local function key_ports(port)
  if port + KEY_PORTS <= 65535 then return port + 1, port + KEY_PORTS end
  return port - KEY_PORTS, port - 1
end

-- What was added to the tables of ports, to be taken out when the port changes.
local added = {}

local function ports_set()
  for _, one in ipairs(added) do one[1]:remove(one[2], one[3]) end
  added = {}
  local port = shift.prefs.port
  for _, name in ipairs({"tcp.port", "udp.port"}) do
    local ports = DissectorTable.get(name)
    added[#added + 1] = {ports, port, shift}
    local first, last = key_ports(port)
    for one = first, last do
      if not ports:get_dissector(one) then added[#added + 1] = {ports, one, keyed} end
    end
  end
  for _, one in ipairs(added) do one[1]:add(one[2], one[3]) end
end

shift.prefs_changed = ports_set
ports_set()
