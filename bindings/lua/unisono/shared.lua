--- Code shared by array and matrix tables.

local ffi = require 'ffi'
local native = require 'unisono.native'
local numbers = require 'unisono.numbers'
local options = require 'unisono.options'

local shared = {}

--- Checks a size that the user passed.
function shared.check_size(size, what)
    if type(size) ~= 'number' or size < 1 or size % 1 ~= 0 then
        native.raise(('%s: expected a whole number from 1, received %s'):format(what, tostring(size)))
    end
end

--- Creates a table: `make` gets the initial values, the options and a pointer for the handle, and returns a status.
function shared.create(init, count, settings, make)
    if type(init) == 'number' then
        local more = { init = init }
        for name, value in pairs(settings or {}) do more[name] = value end
        init, settings = nil, more
    end
    local chosen = options.for_table(settings)
    local first, held
    if init ~= nil then
        local length
        first, length, held = numbers.read(init, numbers.float, count)
        if length ~= count then
            native.raise(('init: expected %d numbers, received %d'):format(count, length))
        end
    end
    local place = ffi.new 'unisono_table[1]'
    native.check(make(first, chosen and chosen[0] or 0, place))
    return native.handle(place[0], native.library.unisono_table_free), held
end

--- Converts row ids, which count from 0: returns the array, its length and a reference that keeps it alive; nil for all rows.
local function ids_of(rows)
    if rows == nil then return nil, 0 end
    return numbers.read(rows, numbers.id)
end

--- Returns the values of these rows, or of all rows, of which there are `all`.
function shared.get(self, rows, all, cols)
    local ids, id_count, held = ids_of(rows)
    local result, place, count = numbers.room(ids and id_count or all, cols)
    native.check(native.library.unisono_table_get(self.handle[0], ids, id_count, place, count))
    return result, held
end

--- Adds delta to these rows, or to all. With `wait` it returns when the add is applied, otherwise perhaps earlier.
function shared.add(self, delta, rows, wait, settings)
    local ids, id_count, ids_held = ids_of(rows)
    if delta == nil then native.raise 'add: expected data, received nil' end
    local array, count, held = numbers.read(delta, numbers.float, ids and id_count * self.cols or self.count)
    local chosen = options.for_add(settings)
    local add = wait and native.library.unisono_table_add or native.library.unisono_table_add_soon
    native.check(add(self.handle[0], ids, id_count, array, count, chosen and chosen[0] or 0))
    return held, ids_held, chosen
end

--- Begins this worker's next step, for consistency "ssp:n" and "average".
function shared.tick(self)
    native.check(native.library.unisono_table_tick(self.handle[0]))
end

--- Returns the number of steps that this worker has made, including those before a restart: the step from which a loop resumes.
function shared.clock(self)
    local steps = ffi.new 'uint64_t[1]'
    native.check(native.library.unisono_table_clock(self.handle[0], steps))
    return tonumber(steps[0])
end

--- Waits until all adds that this process started on this table are applied.
function shared.flush(self)
    native.check(native.library.unisono_table_flush(self.handle[0]))
end

--- Declares that this worker makes no further calls on this table, so that the others do not wait for it. Its adds are
--- applied first.
function shared.finish(self)
    native.check(native.library.unisono_table_finish(self.handle[0]))
end

--- Returns how old the values returned by gets were: entry i counts the gets during which the slowest worker was i - 1 steps behind.
function shared.staleness(self)
    local count = ffi.new 'size_t[1]'
    local histogram = ffi.new('uint64_t[?]', 1024)
    native.check(native.library.unisono_table_staleness(self.handle[0], histogram, 1024, count))
    local result = {}
    for i = 1, tonumber(count[0]) do result[i] = tonumber(histogram[i - 1]) end
    return result
end

--- Creates a class of tables, with the methods that all of them have.
function shared.class()
    local class = {
        tick = shared.tick,
        clock = shared.clock,
        flush = shared.flush,
        finish = shared.finish,
        staleness = shared.staleness,
    }
    class.__index = class
    return class
end

return shared
