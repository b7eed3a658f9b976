import{g as n}from"./chunk-RLH3V6A7.js";function p({run:e}){return n("p",{class:"quiet",children:e.id})}export{p as Messages};
