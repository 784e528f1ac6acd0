--- For programs written for Multiverso: its names for what the module unisono has, and all that it has besides.

local unisono = require 'unisono'

--- A class under its name in Multiverso, where some programs write `New`.
local function handler(class)
    local named = setmetatable({ New = class.new }, { __index = class })
    named.__index = named
    return named
end

local multiverso = setmetatable({
    ArrayTableHandler = handler(unisono.ArrayTable),
    MatrixTableHandler = handler(unisono.MatrixTable),
    num_workers = unisono.workers,
    num_servers = unisono.servers,
    util = require 'multiverso.util',
}, { __index = unisono })

--- Joins the other processes.
-- @param sync true: tables work in rounds, every get sees the same adds of everybody
function multiverso.init(sync)
    if type(sync) == 'table' then return unisono.init(sync) end
    unisono.init(sync and { consistency = 'bsp' } or nil)
end

return multiverso
