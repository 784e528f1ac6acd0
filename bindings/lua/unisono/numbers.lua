--- Converts torch tensors, ffi arrays and Lua tables to arrays that the library reads, and results back.

local ffi = require 'ffi'
local native = require 'unisono.native'

local has_torch, torch = pcall(require, 'torch')

local numbers = {}

-- The types of results without torch: they support `#`, 1-based indexing and tostring.
local Vector = ffi.typeof 'struct { size_t size; float values[?]; }'
local Row = ffi.typeof 'struct { size_t size; float *values; }'
local Matrix = ffi.typeof 'struct { size_t rows; size_t cols; float values[?]; }'

--- The matrix of each row in use, which keeps its memory alive.
local owners = setmetatable({}, { __mode = 'k' })

local function inside(index, size, what)
    if type(index) ~= 'number' or index < 1 or index > size or index % 1 ~= 0 then
        native.raise(('%s: expected an index from 1 to %d, received %s'):format(what, tonumber(size), tostring(index)))
    end
    return index - 1
end

local vector_methods = {
    --- Returns the values as a Lua table.
    totable = function(vector)
        local values = {}
        for i = 1, tonumber(vector.size) do values[i] = vector.values[i - 1] end
        return values
    end,
}

local vector_metatable = {
    __len = function(vector) return tonumber(vector.size) end,
    __index = function(vector, index)
        local method = vector_methods[index]
        if method then return method end
        return vector.values[inside(index, vector.size, 'vector')]
    end,
    __newindex = function(vector, index, value) vector.values[inside(index, vector.size, 'vector')] = value end,
    __tostring = function(vector)
        local texts = {}
        for i, value in ipairs(vector:totable()) do texts[i] = ('%.7g'):format(value) end
        return '[' .. table.concat(texts, ', ') .. ']'
    end,
}
ffi.metatype(Vector, vector_metatable)
ffi.metatype(Row, vector_metatable)

local matrix_methods = {
    --- Returns the values as a Lua table of rows.
    totable = function(matrix)
        local values = {}
        for i = 1, #matrix do values[i] = matrix[i]:totable() end
        return values
    end,
}

ffi.metatype(Matrix, {
    __len = function(matrix) return tonumber(matrix.rows) end,
    __index = function(matrix, index)
        local method = matrix_methods[index]
        if method then return method end
        local row = Row(matrix.cols, matrix.values + inside(index, matrix.rows, 'matrix') * matrix.cols)
        owners[row] = matrix
        return row
    end,
    __tostring = function(matrix)
        local lines = {}
        for i = 1, #matrix do lines[i] = tostring(matrix[i]) end
        return '[' .. table.concat(lines, ',\n ') .. ']'
    end,
})

--- Allocates a result: returns the object for the caller, the pointer to write to, and the count. With `cols` it has two axes.
function numbers.room(rows, cols)
    local count = rows * (cols or 1)
    if has_torch then
        local tensor = cols and torch.FloatTensor(rows, cols) or torch.FloatTensor(rows)
        return tensor, tensor:data(), count
    end
    local result = cols and Matrix(count) or Vector(count)
    if cols then result.rows, result.cols = rows, cols else result.size = rows end
    return result, result.values, count
end

--- Describes an element type that the library reads.
function numbers.kind(name)
    return {
        name = name,
        array = ffi.typeof(name .. '[?]'),
        pointer = ffi.typeof('const ' .. name .. ' *'),
        is_whole = name ~= 'float' and name ~= 'double',
    }
end

numbers.float = numbers.kind 'float'
numbers.id = numbers.kind 'int64_t'

--- Checks that a value is a number of this kind, and returns it.
local function checked(value, kind, position)
    if type(value) ~= 'number' then
        native.raise(('values: expected numbers, received a %s at position %d'):format(type(value), position))
    elseif kind.is_whole and value % 1 ~= 0 then
        native.raise(('values: expected whole numbers, received %s at position %d'):format(value, position))
    end
    return value
end

local function count_of(list)
    local count = 0
    for _, value in ipairs(list) do count = count + (type(value) == 'table' and count_of(value) or 1) end
    return count
end

--- Copies the numbers of a Lua table, which may be nested, to an array; returns the next position.
local function flatten(list, kind, array, at)
    for _, value in ipairs(list) do
        if type(value) == 'table' then
            at = flatten(value, kind, array, at)
        else
            array[at] = checked(value, kind, at + 1)
            at = at + 1
        end
    end
    return at
end

--- Returns the element type and the length of ffi memory; the length of a pointer is nil.
local function elements(data)
    local name = tostring(ffi.typeof(data)):match '^ctype<(.*)>$'
    local element = name:match '^(.-)%s*%(?&?%)?%['
    if element then
        element = element:gsub('^const ', '')
        return element, ffi.sizeof(data) / ffi.sizeof(element)
    end
    element = name:match '^(.-)%s*%*$'
    return element and element:gsub('^const ', '') or nil
end

--- Reads `count` numbers from ffi memory: directly if the type matches, otherwise converted element by element.
local function from_memory(data, element, count, kind)
    local pointer = ffi.cast('const ' .. element .. ' *', data)
    if element == kind.name then return pointer, count, data end
    local array = kind.array(math.max(count, 1))
    for i = 0, count - 1 do array[i] = checked(tonumber(pointer[i]), kind, i + 1) end
    return array, count, array
end

--- Converts data for the library: returns a pointer, the count, and a reference that keeps the memory alive.
-- @param expected the count if the data is a pointer, which has no length
function numbers.read(data, kind, expected)
    if has_torch and torch.isTensor(data) then
        local tensor = (kind.is_whole and data:long() or data:float()):contiguous()
        return ffi.cast(kind.pointer, tensor:data()), tensor:nElement(), tensor
    elseif type(data) == 'table' then
        local count = count_of(data)
        local array = kind.array(math.max(count, 1))
        flatten(data, kind, array, 0)
        return array, count, array
    elseif type(data) == 'cdata' then
        if ffi.istype(Matrix, data) then
            return from_memory(data.values, 'float', tonumber(data.rows * data.cols), kind)
        elseif ffi.istype(Vector, data) or ffi.istype(Row, data) then
            return from_memory(data.values, 'float', tonumber(data.size), kind)
        end
        local element, count = elements(data)
        count = count or expected
        if element and count then return from_memory(data, element, count, kind) end
    end
    native.raise('values: expected a tensor, an ffi array or a table of numbers, received '
        .. (type(data) == 'cdata' and tostring(ffi.typeof(data)) or type(data)))
end

return numbers
