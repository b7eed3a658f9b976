import{g as n}from"./chunk-RLH3V6A7.js";function p({run:i}){return n("p",{class:"quiet",children:i.id})}export{p as Family};
