--- Helpers of the test programs: checks that report the failing line, and a minimal substitute for torch.

local ffi = require 'ffi'

local check = {}

function check.equal(found, expected, what)
    if found ~= expected then
        error(('%s: expected %s, found %s'):format(what or 'value', tostring(expected), tostring(found)), 2)
    end
end

--- Checks that the call raises an error that contains these words.
function check.fails(words, call, ...)
    local fine, message = pcall(call, ...)
    if fine or not tostring(message):find(words, 1, true) then
        error(('expected an error with %q, found %s'):format(words, fine and 'none' or tostring(message)), 2)
    end
end

--- Returns a module with the part of torch that the binding uses; its tensors are tables that own their memory.
function check.torch()
    local Tensor = {}
    local methods = {
        data = function(tensor) return tensor.memory end,
        nElement = function(tensor) return tensor.count end,
        contiguous = function(tensor) return tensor end,
    }
    local function tensor(element)
        return function(rows, cols)
            local count = rows * (cols or 1)
            local made = { element = element, rows = rows, cols = cols, count = count }
            made.memory = ffi.new(element .. '[?]', count)
            return setmetatable(made, Tensor)
        end
    end
    local function convert(element)
        return function(from)
            local to = tensor(element)(from.rows, from.cols)
            for i = 0, from.count - 1 do to.memory[i] = tonumber(from.memory[i]) end
            return to
        end
    end
    methods.float, methods.long = convert 'float', convert 'long'
    Tensor.__index = function(tensor, key)
        if type(key) ~= 'number' then return methods[key] end
        if not tensor.cols then return tonumber(tensor.memory[key - 1]) end
        return setmetatable({}, { __index = function(_, col)
            return tonumber(tensor.memory[(key - 1) * tensor.cols + col - 1])
        end })
    end
    return {
        FloatTensor = tensor 'float',
        DoubleTensor = tensor 'double',
        LongTensor = tensor 'long',
        isTensor = function(value) return type(value) == 'table' and getmetatable(value) == Tensor end,
    }
end

return check
